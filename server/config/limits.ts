import type { Settings } from './setting-values.ts';

/**
 * The limits of a node. `undefined` if a limit is off. Settings for connections and memory are those of the machine, and are
 * divided among its processes. Rates are not: the calls of one caller may all reach one process.
 */
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

/** `openFiles`: the number of files that the system lets each process open. */
export function readLimits(
  settings: Settings,
  { openFiles, processes }: { openFiles: number; processes: number },
): LimitsConfig {
  const max = 1_000_000;
  const bodyMb = readLimit(settings, 'TRELLIS_BODY_MEMORY_MB', { fallback: 256, min: minBodyMb, max });
  const connections = readNumber(settings, 'TRELLIS_MAX_CONNECTIONS', { min: 10, max });
  return {
    perKey: readLimit(settings, 'TRELLIS_RATE_LIMIT', { fallback: undefined, min: 1, max }),
    perPerson: readLimit(settings, 'TRELLIS_PERSON_RATE_LIMIT', { fallback: 3_000, min: 60, max }),
    perAddress: readLimit(settings, 'TRELLIS_ADDRESS_RATE_LIMIT', { fallback: 600, min: 10, max }),
    maxConnections:
      connections === undefined ? maxConnectionsOf(openFiles) : Math.ceil(connections / processes),
    overloadDelayMs: readLimit(settings, 'TRELLIS_OVERLOAD_DELAY_MS', {
      fallback: 100,
      min: 10,
      max: 10_000,
    }),
    bodyBytes:
      bodyMb === undefined ? undefined : Math.max(minBodyMb, Math.floor(bodyMb / processes)) * 1024 * 1024,
  };
}

/** The length of the largest body of `POST /records`. */
const minBodyMb = 32;
/** Files and sockets of the service itself, to the database and on disk. */
const ownFiles = 256;

/** A proxied call has two sockets: the caller's, and one to the provider. */
function maxConnectionsOf(openFiles: number): number {
  return Math.min(50_000, Math.max(100, Math.floor((openFiles - ownFiles) / 2)));
}

type Range = { min: number; max: number };

function readLimit(
  settings: Settings,
  name: string,
  { fallback, ...range }: Range & { fallback: number | undefined },
): number | undefined {
  const text = settings.read(name);
  if (text === 'off') return undefined;
  return text === undefined ? fallback : readNumber(settings, name, { ...range, orOff: ', or off' });
}

function readNumber(
  settings: Settings,
  name: string,
  { min, max, orOff = '' }: Range & { orOff?: string },
): number | undefined {
  const text = settings.read(name);
  if (text === undefined) return undefined;
  const number = Number(text);
  if (/^\d{1,9}$/.test(text) && number >= min && number <= max) return number;
  settings.faults.push(`${name} must be a number from ${min} to ${max}${orOff}, it is "${text}"`);
  return undefined;
}
