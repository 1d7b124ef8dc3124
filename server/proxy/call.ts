/** What our own headers of a proxied call mean. */
import type { IncomingHttpHeaders } from 'node:http';
import { z } from 'zod';
import { AppError } from '../errors.ts';

/** How long each phase of a call may take, in ms. */
export type Timeouts = {
  /** Until a connection is open and free for this call. */
  readonly connectMs: number;
  /** From there, or from the end of the request's body, to the answer's head. */
  readonly headersMs: number;
  /** Between two parts of either body, and for the caller to take what has come. */
  readonly bodyIdleMs: number;
  /** From the call's arrival to the answer's last byte, attempts and waits included; undefined: no limit. */
  readonly totalMs: number | undefined;
};

export type Call = {
  readonly integrationKey: string;
  readonly connectionId: string;
  readonly override: string | undefined;
  readonly isDecoded: boolean;
  /** Further attempts beyond the first. */
  readonly retries: number;
  /** Statuses that are tried again; undefined: those that usually pass. */
  readonly retryOn: ReadonlySet<number> | undefined;
  readonly timeouts: Partial<Timeouts>;
  /** How long it may wait for the provider's quota; undefined: the usual time. */
  readonly quotaWaitMs: number | undefined;
};

const phases = { connect: 'connectMs', headers: 'headersMs', idle: 'bodyIdleMs', total: 'totalMs' } as const;
const maxPhaseMs = 3_600_000;

const callHeaders = z.object({
  'provider-config-key': z.string().min(1),
  'connection-id': z.string().min(1),
  retries: z
    .string()
    .regex(/^(\d|10)$/, 'must be a whole number from 0 to 10')
    .default('0'),
  'retry-on': z
    .string()
    .regex(/^[45]\d\d(, ?[45]\d\d)*$/, 'must be HTTP statuses from 400 on, separated by commas')
    .optional(),
  'base-url-override': z.string().optional(),
  decompress: z.enum(['true', 'false']).default('false'),
  'quota-wait': z
    .string()
    .regex(/^([0-5]?\d|60)$/, 'must be a whole number of seconds from 0 to 60')
    .optional(),
  timeouts: z
    .string()
    .regex(
      /^(connect|headers|idle|total)=\d{1,4}(\.\d{1,3})?(, ?(connect|headers|idle|total)=\d{1,4}(\.\d{1,3})?)*$/,
      'must name phases and seconds, such as `connect=5, headers=30, idle=60, total=120`',
    )
    .transform(readTimeouts)
    .refine(
      (given) => Object.values(given).every((ms = 0) => ms > 0 && ms <= maxPhaseMs),
      'must be times from 0.001 to 3600 seconds',
    )
    .optional(),
});

const plain = {
  isDecoded: false,
  retries: 0,
  retryOn: undefined,
  timeouts: {},
  quotaWaitMs: undefined,
} as const;

/** Throws `invalid_headers` (400) naming the header. */
export function readCall(headers: IncomingHttpHeaders): Call {
  const { 'provider-config-key': integrationKey, 'connection-id': connectionId } = headers;
  // Most calls say nothing beyond this, and need no schema to be read.
  if (isText(integrationKey) && isText(connectionId) && !saysMore(headers)) {
    return { ...plain, integrationKey, connectionId, override: textOf(headers['base-url-override']) };
  }
  const read = callHeaders.safeParse(headers);
  if (!read.success) {
    const errors = read.error.issues.map(({ code, message, path }) => ({
      code,
      message,
      path: path.map(String),
    }));
    throw new AppError('invalid_headers', undefined, { errors });
  }
  const { data } = read;
  return {
    integrationKey: data['provider-config-key'],
    connectionId: data['connection-id'],
    override: data['base-url-override'],
    isDecoded: data.decompress === 'true',
    retries: Number(data.retries),
    retryOn: data['retry-on'] === undefined ? undefined : new Set(data['retry-on'].split(',').map(Number)),
    timeouts: data.timeouts ?? {},
    quotaWaitMs: data['quota-wait'] === undefined ? undefined : Number(data['quota-wait']) * 1000,
  };
}

function saysMore(headers: IncomingHttpHeaders): boolean {
  return (
    headers.retries !== undefined ||
    headers['retry-on'] !== undefined ||
    headers.decompress !== undefined ||
    headers['quota-wait'] !== undefined ||
    headers.timeouts !== undefined
  );
}

function readTimeouts(text: string): Partial<Timeouts> {
  const parts = text.split(',').map((part) => part.trim().split('=') as [keyof typeof phases, string]);
  return Object.fromEntries(parts.map(([name, seconds]) => [phases[name], Number(seconds) * 1000]));
}

function isText(value: string | string[] | undefined): value is string {
  return typeof value === 'string' && value !== '';
}

function textOf(value: string | string[] | undefined): string | undefined {
  return typeof value === 'string' ? value : undefined;
}
