/**
 * A recorded run: the calls of a function with their responses, and its outcome. It contains the data of
 * the provider's responses, but no credentials.
 *
 * Owns the format of the file, the removal of secrets, the lookup of calls in a replay, the comparison of outcomes, and the
 * clock that makes runs comparable. Does not own the run (`run-locally.ts`).
 */
import type { About } from '../functions/harness/service.ts';
import {
  asJson,
  type Json,
  type JsonObject,
  type ModelEffects,
  type Outcome,
  serviceError,
} from './outcome.ts';
import {
  type CallName,
  type CallResponse,
  type FactName,
  formatCall,
  type OutgoingCall,
  type Reads,
} from './reads.ts';
import {
  createRedactor,
  credentialsIn,
  placeholderOf,
  type Redactor,
  recordableHeaders,
  replaceShort,
  secretsIn,
} from './redact.ts';

/** A body in its most readable form. `spaces` is the indentation of JSON, `end` the white space after it. */
type Body = { json: Json; spaces: number; end: string } | { text: string } | { base64: string };

type RecordedCall = {
  call: string;
  kind: CallName;
  method: string;
  endpoint: string;
  /** The query string, sorted by name. */
  query: string;
  base_url?: string;
  body?: Body;
  answer: {
    status: number;
    status_text: string;
    url?: string;
    headers: Record<string, string>;
    body: Body | null;
  };
};

export type Recording = {
  version: 1;
  function: string;
  /** The start time of the function's clock. */
  recorded_at: string;
  about: About;
  input?: Json;
  metadata: JsonObject;
  checkpoint: Json;
  /** The values that the function read from the service. */
  facts: Partial<Record<FactName, Json>>;
  calls: RecordedCall[];
  outcome: Outcome;
};

type RecordedRequest = Omit<RecordedCall, 'answer'>;

/** Wraps `reads` and records the results for a replay. The `credentials` of `connection` and `key` are removed. */
export function createRecorder(reads: Reads, { connection, key }: { connection: JsonObject; key: string }) {
  const redactor = createRedactor();
  redactor.add(placeholderOf('key'), key);
  const credentials = (connection.credentials ?? {}) as JsonObject;
  for (const [path, secret] of secretsIn(credentials, 'credentials'))
    redactor.add(placeholderOf(path), secret);
  const { username, password } = credentials;
  if (typeof username === 'string' && typeof password === 'string')
    redactor.add(placeholderOf('credentials.basic'), `${username}:${password}`);
  let found = 0;
  /** Adds the tokens in a response, which are secrets too. */
  const addSecretsIn = (bytes: Buffer) => {
    const body = bytes.length === 0 ? undefined : bodyIn(bytes);
    if (body === undefined || !('json' in body)) return;
    for (const [name, secret] of credentialsIn(body.json)) {
      found += 1;
      redactor.add(placeholderOf(`answer.${name}.${found}`), secret);
    }
  };
  const calls: RecordedCall[] = [];
  const facts: Recording['facts'] = {};
  const recording: Reads = {
    async call(call, signal) {
      // Added before the response, so that the order of calls does not depend on the duration of concurrent calls.
      const entry = requestOf(call, redactor) as RecordedCall;
      calls.push(entry);
      const response = await reads.call(call, signal).catch((error: unknown) => {
        calls.splice(calls.indexOf(entry), 1);
        throw error;
      });
      addSecretsIn(response.body);
      entry.answer = responseOf(response, redactor);
      return response;
    },
    async fact(name) {
      const fact = await reads.fact(name);
      if (name === 'getToken')
        for (const [path, secret] of secretsIn(fact, 'token')) redactor.add(placeholderOf(path), secret);
      if (name === 'getEnvironmentVariables')
        for (const { name: variable, value } of fact as { name: string; value: string | null }[])
          if (value !== null) redactor.add(placeholderOf(`variable.${variable}`), value);
      facts[name] = fact;
      return fact;
    },
  };
  return {
    reads: recording,
    /** Also removes these credentials, which a refresh during the run may have created. */
    addCredentials(added: JsonObject): void {
      for (const [path, secret] of secretsIn(added, 'credentials')) redactor.add(placeholderOf(path), secret);
    },
    /** Returns the recording without secrets. */
    finish(rest: Omit<Recording, 'facts' | 'calls' | 'version'>): Recording {
      const recordedFacts = Object.fromEntries(
        Object.entries(facts).map(([name, fact]) => [name, withoutSecrets(name as FactName, fact)]),
      );
      // A call that the function did not await may have no response.
      const finished = calls.filter(({ answer }) => answer !== undefined);
      // Redacts all calls again, because a secret may be found after a call that contains it.
      return redactor.json(
        asJson({ version: 1, ...rest, facts: recordedFacts, calls: finished }) as JsonObject,
      ) as unknown as Recording;
    },
  };
}

function withoutSecrets(name: FactName, fact: Json): Json {
  if (name === 'getToken' && typeof fact === 'object') return replaceShort(fact as JsonObject, 'credentials');
  if (name !== 'getConnection') return fact;
  const connection = fact as JsonObject;
  const { credentials = {} } = connection;
  return { ...connection, credentials: replaceShort(credentials as JsonObject, 'credentials') };
}

export type Replay = Reads & {
  /** Returns a line for each call that was not recorded, and for each recorded call that was not made. */
  faults(): string[];
};

/** Returns the recorded responses, each once, for equal calls in their order. Makes no network call. */
export function createReplay(recording: Recording): Replay {
  const remaining = [...recording.calls];
  const unrecorded: string[] = [];
  const noSecrets = createRedactor();
  return {
    async call(call) {
      const request = requestOf(call, noSecrets);
      const wanted = identityOf(request);
      const index = remaining.findIndex((one) => identityOf(one) === wanted);
      const [found] = index < 0 ? [] : remaining.splice(index, 1);
      if (found === undefined) {
        const hasOtherBody = remaining.some((one) => one.call === request.call);
        unrecorded.push(`${request.call} was not recorded${hasOtherBody ? ' with this body' : ''}.`);
        throw serviceError('not_recorded', `${request.call} was not recorded.`);
      }
      const { status, status_text: statusText, url, headers, body } = found.answer;
      return {
        value: { status, statusText, headers, ...(url !== undefined && { url }) },
        body: body === null ? Buffer.alloc(0) : bytesIn(body),
      };
    },
    async fact(name) {
      const fact = recording.facts[name];
      if (fact !== undefined) return fact;
      unrecorded.push(`${name} was not recorded.`);
      throw serviceError('not_recorded', `${name} was not recorded.`);
    },
    faults: () => [...unrecorded, ...remaining.map(({ call }) => `${call} was recorded, and not made.`)],
  };
}

/** Identifies a call by method, address and body. Ignores headers, and the order of parameters and fields. */
function identityOf({ kind, method, endpoint, query, base_url = '', body }: RecordedRequest): string {
  return JSON.stringify([kind, method, endpoint, query, base_url, sorted(body ?? null)]);
}

function requestOf(call: OutgoingCall, redactor: Redactor): RecordedRequest {
  const { method, endpoint, url, query = '', baseUrlOverride } = call.args;
  const params = new URLSearchParams(query);
  params.sort();
  const request = {
    call: formatCall(call),
    kind: call.name,
    method,
    endpoint: url ?? `/${(endpoint ?? '').replace(/^\/+/, '')}`,
    query: params.toString(),
    ...(baseUrlOverride !== undefined && { base_url: baseUrlOverride }),
    ...(call.body !== undefined && call.body.length > 0 && { body: bodyIn(call.body) }),
  };
  return redactor.json(asJson(request) as JsonObject) as unknown as RecordedRequest;
}

function responseOf({ value, body }: CallResponse, redactor: Redactor): RecordedCall['answer'] {
  const { status, statusText, url, headers } = value;
  const response = {
    status,
    status_text: statusText,
    headers: recordableHeaders(headers),
    ...(url !== undefined && { url }),
    body: body.length === 0 ? null : bodyIn(body),
  };
  return redactor.json(asJson(response) as JsonObject) as unknown as RecordedCall['answer'];
}

/** Returns JSON only if its serialization gives the same bytes. */
function bodyIn(bytes: Buffer): Body {
  const text = bytes.toString('utf8');
  if (!Buffer.from(text).equals(bytes)) return { base64: bytes.toString('base64') };
  try {
    const json = JSON.parse(text) as Json;
    const end = /\s*$/.exec(text)?.[0] ?? '';
    for (const spaces of [0, 2])
      if (JSON.stringify(json, null, spaces) + end === text) return { json, spaces, end };
  } catch {
    // The text is not JSON.
  }
  return { text };
}

function bytesIn(body: Body): Buffer {
  if ('json' in body) return Buffer.from(JSON.stringify(body.json, null, body.spaces) + body.end);
  return 'text' in body ? Buffer.from(body.text) : Buffer.from(body.base64, 'base64');
}

function sorted(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(sorted);
  const names = Object.keys(value).sort();
  return Object.fromEntries(names.map((name) => [name, sorted((value as Record<string, unknown>)[name])]));
}

/** The largest number of differences in a report. */
const maxDifferences = 20;

/** Returns a line for each difference between two outcomes. Compares records by ID, in any order. */
export function compareOutcomes(recorded: Outcome, now: Outcome): string[] {
  const found: string[] = [];
  compare('error', { recorded: asField(recorded.error), now: asField(now.error), found });
  compare('result', { recorded: recorded.result, now: now.result, found });
  for (const model of new Set([...Object.keys(recorded.records), ...Object.keys(now.records)])) {
    const [before, after] = [byId(recorded.records[model]), byId(now.records[model])];
    for (const id of new Set([...before.keys(), ...after.keys()]))
      compare(`${model} ${id}`, { recorded: before.get(id), now: after.get(id), found });
  }
  compare('checkpoint', { recorded: recorded.checkpoint, now: now.checkpoint, found });
  compare('state', { recorded: recorded.state, now: now.state, found });
  compare('metadata', { recorded: recorded.metadata, now: now.metadata, found });
  const more = found.length - maxDifferences;
  return more > 0 ? [...found.slice(0, maxDifferences), `and ${more} more differences`] : found;
}

function asField(error: Outcome['error']): Json | undefined {
  return error && ({ ...error } as Json);
}

/** The effect on each record, by ID. */
function byId(effects: ModelEffects | undefined): Map<string, Json> {
  const { saved = [], updated = [], deleted = [] } = effects ?? {};
  return new Map<string, Json>([
    ...saved.map((record) => [record.id, { saved: record }] as const),
    ...updated.map((record) => [record.id, { updated: record }] as const),
    ...deleted.map((id) => [id, 'deleted'] as const),
  ]);
}

type Comparison = { recorded: Json | undefined; now: Json | undefined; found: string[] };

function compare(path: string, { recorded, now, found }: Comparison): void {
  if (isComposite(recorded) && isComposite(now) && Array.isArray(recorded) === Array.isArray(now)) {
    const [before, after] = [recorded, now] as Record<string, Json>[];
    for (const name of new Set([...Object.keys(before!), ...Object.keys(after!)]))
      compare(`${path}.${name}`, { recorded: before![name], now: after![name], found });
  } else if (JSON.stringify(recorded) !== JSON.stringify(now)) {
    found.push(`${path}: recorded ${formatValue(recorded)}, now ${formatValue(now)}`);
  }
}

function isComposite(value: Json | undefined): value is Json[] | { [name: string]: Json } {
  return typeof value === 'object' && value !== null;
}

function formatValue(value: Json | undefined): string {
  const text = value === undefined ? 'nothing' : JSON.stringify(value);
  return text.length > 200 ? `${text.slice(0, 199)}…` : text;
}

/** A clock that only timers advance, so that equal runs read equal times. */
export type Clock = Readonly<Record<'Date' | 'setTimeout', unknown>>;

/**
 * Returns `Date` and `setTimeout` for a function. The time is `startMs` until a timer fires, which advances it by the delay of
 * the timer. `schedule` determines whether a timer really waits.
 */
export function createSteadyClock(
  startMs: number,
  schedule: (ms: number, fire: () => void) => NodeJS.Timeout,
): Clock {
  let nowMs = startMs;
  class SteadyDate extends Date {
    constructor(...args: [] | [number | string | Date]) {
      super(...((args.length === 0 ? [nowMs] : args) as [number]));
    }
    static override now(): number {
      return nowMs;
    }
    // Dates created outside of the function are instances, too.
    static override [Symbol.hasInstance](value: unknown): boolean {
      return Object.prototype.toString.call(value) === '[object Date]';
    }
  }
  const setTimeout = (fire: (...args: unknown[]) => void, ms = 0, ...args: unknown[]) => {
    const firesAt = nowMs + Math.max(0, Number(ms) || 0);
    return schedule(ms, () => {
      nowMs = Math.max(nowMs, firesAt);
      fire(...args);
    });
  };
  return { Date: SteadyDate, setTimeout };
}

/** Calls `run` in the time zone UTC, so that dates are the same on every machine. Calls must not overlap. */
export async function inUtc<T>(run: () => Promise<T>): Promise<T> {
  const { TZ } = process.env;
  process.env.TZ = 'UTC';
  try {
    return await run();
  } finally {
    if (TZ === undefined) delete process.env.TZ;
    else process.env.TZ = TZ;
  }
}
