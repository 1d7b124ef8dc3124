/** How much a node takes on. `undefined` where a limit is off. */
export type LimitsConfig = {
  /** Calls a minute of a key without a limit of its own, over all nodes. */
  perKey: number | undefined;
  /** Calls a minute of a person of the dashboard, and of a public address without a key; each node counts its own. */
  perPerson: number | undefined;
  perAddress: number | undefined;
  /** Open connections of callers. */
  maxConnections: number;
  /** How late the event loop may be, steadily, before calls are turned away. */
  overloadDelayMs: number | undefined;
  /** Bytes of the large bodies that are read at once. */
  bodyBytes: number | undefined;
};

type Read = (name: string) => string | undefined;

/** `openFiles`: how many the system lets this process have open at once. */
export function readLimits(
  read: Read,
  { faults, openFiles }: { faults: string[]; openFiles: number },
): LimitsConfig {
  const max = 1_000_000;
  const bodyMb = readLimit(read('TRELLIS_BODY_MEMORY_MB'), {
    name: 'TRELLIS_BODY_MEMORY_MB',
    ...{ fallback: 256, min: 32, max, faults },
  });
  return {
    perKey: readLimit(read('TRELLIS_RATE_LIMIT'), {
      name: 'TRELLIS_RATE_LIMIT',
      ...{ fallback: undefined, min: 1, max, faults },
    }),
    perPerson: readLimit(read('TRELLIS_PERSON_RATE_LIMIT'), {
      name: 'TRELLIS_PERSON_RATE_LIMIT',
      ...{ fallback: 3_000, min: 60, max, faults },
    }),
    perAddress: readLimit(read('TRELLIS_ADDRESS_RATE_LIMIT'), {
      name: 'TRELLIS_ADDRESS_RATE_LIMIT',
      ...{ fallback: 600, min: 10, max, faults },
    }),
    maxConnections:
      readNumber(read('TRELLIS_MAX_CONNECTIONS'), {
        name: 'TRELLIS_MAX_CONNECTIONS',
        ...{ min: 10, max, faults },
      }) ?? maxConnectionsOf(openFiles),
    overloadDelayMs: readLimit(read('TRELLIS_OVERLOAD_DELAY_MS'), {
      name: 'TRELLIS_OVERLOAD_DELAY_MS',
      ...{ fallback: 100, min: 10, max: 10_000, faults },
    }),
    bodyBytes: bodyMb === undefined ? undefined : bodyMb * 1024 * 1024,
  };
}

/** Files and sockets of the service's own, to the database and on disk. */
const ownFiles = 256;

/** A proxied call has two sockets: the caller's, and one to the provider. */
function maxConnectionsOf(openFiles: number): number {
  return Math.min(50_000, Math.max(100, Math.floor((openFiles - ownFiles) / 2)));
}

type Rule = { name: string; min: number; max: number; faults: string[] };

function readLimit(
  text: string | undefined,
  { fallback, ...rule }: Rule & { fallback: number | undefined },
): number | undefined {
  if (text === 'off') return undefined;
  return text === undefined ? fallback : readNumber(text, { ...rule, orOff: ', or off' });
}

function readNumber(
  text: string | undefined,
  { name, min, max, faults, orOff = '' }: Rule & { orOff?: string },
): number | undefined {
  if (text === undefined) return undefined;
  const number = Number(text);
  if (/^\d{1,9}$/.test(text) && number >= min && number <= max) return number;
  faults.push(`${name} must be a number from ${min} to ${max}${orOff}, it is "${text}"`);
  return undefined;
}
