/**
 * A recorded run: the calls that a function made with their answers, and what it came to. Credentials are not in it; what
 * the provider answered is.
 *
 * Owns the file's form, what is kept out of it, and how calls are found again. Does not own the run (`run-locally.ts`).
 */
import type { About } from '../functions/harness/service.ts';
import { asJson, type Json, type JsonObject, type Outcome, refusal } from './outcome.ts';
import {
  type CallAnswer,
  type CallName,
  type FactName,
  type OutgoingCall,
  type Reads,
  titleOf as titleOfCall,
} from './reads.ts';
import {
  createRedactor,
  credentialsIn,
  lastingHeaders,
  type Redactor,
  secretsIn,
  titleOf,
  withoutShort,
} from './redact.ts';

/** Bytes as what reads best: `spaces` says how the JSON was indented, `end` what stood behind it. */
type Body = { json: Json; spaces: number; end: string } | { text: string } | { base64: string };

export type RecordedCall = {
  call: string;
  kind: CallName;
  method: string;
  endpoint: string;
  /** In the order of its names. */
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
  /** The time that the function is told. */
  recorded_at: string;
  about: About;
  input?: Json;
  metadata: JsonObject;
  checkpoint: Json;
  /** What it asked the service. */
  facts: Partial<Record<FactName, Json>>;
  calls: RecordedCall[];
  outcome: Outcome;
};

type Request = Omit<RecordedCall, 'answer'>;

/** Keeps what it hands through, as a replay is to give it back. */
export function recorder(reads: Reads, { connection, key }: { connection: JsonObject; key: string }) {
  const redactor = createRedactor();
  redactor.add(titleOf('key'), key);
  const credentials = (connection.credentials ?? {}) as JsonObject;
  for (const [path, secret] of secretsIn(credentials, 'credentials')) redactor.add(titleOf(path), secret);
  const { username, password } = credentials;
  if (typeof username === 'string' && typeof password === 'string')
    redactor.add(titleOf('credentials.basic'), `${username}:${password}`);
  let learned = 0;
  /** Tokens that a provider gives are none of the connection's credentials, and no less secret. */
  const learn = (body: Buffer) => {
    const read = body.length === 0 ? undefined : bodyIn(body);
    if (read === undefined || !('json' in read)) return;
    for (const [name, secret] of credentialsIn(read.json)) {
      learned += 1;
      redactor.add(titleOf(`answer.${name}.${learned}`), secret);
    }
  };
  const calls: RecordedCall[] = [];
  const facts: Recording['facts'] = {};
  const recording: Reads = {
    async call(call, signal) {
      // Its place is that of its beginning, whichever of several answers first.
      const entry = requestOf(call, redactor) as RecordedCall;
      calls.push(entry);
      const answer = await reads.call(call, signal).catch((error: unknown) => {
        calls.splice(calls.indexOf(entry), 1);
        throw error;
      });
      learn(answer.body);
      entry.answer = answerOf(answer, redactor);
      return answer;
    },
    async fact(name) {
      const fact = await reads.fact(name);
      if (name === 'getToken')
        for (const [path, secret] of secretsIn(fact, 'token')) redactor.add(titleOf(path), secret);
      if (name === 'getEnvironmentVariables')
        for (const { name: variable, value } of fact as { name: string; value: string | null }[])
          if (value !== null) redactor.add(titleOf(`variable.${variable}`), value);
      facts[name] = fact;
      return fact;
    },
  };
  return {
    reads: recording,
    /** Those that the connection has by now: they may have been renewed on the way. */
    renewed(now: JsonObject): void {
      for (const [path, secret] of secretsIn(now, 'credentials')) redactor.add(titleOf(path), secret);
    },
    /** Everything, without secrets. */
    finish(of: Omit<Recording, 'facts' | 'calls' | 'version'>): Recording {
      const told = Object.fromEntries(
        Object.entries(facts).map(([name, fact]) => [name, factToKeep(name as FactName, fact)]),
      );
      // What the function did not wait for has no answer.
      const ended = calls.filter(({ answer }) => answer !== undefined);
      // A secret may have become known after a call that holds it.
      return redactor.json(
        asJson({ version: 1, ...of, facts: told, calls: ended }) as JsonObject,
      ) as unknown as Recording;
    },
  };
}

function factToKeep(name: FactName, fact: Json): Json {
  if (name === 'getToken' && typeof fact === 'object') return withoutShort(fact as JsonObject, 'credentials');
  if (name !== 'getConnection') return fact;
  const connection = fact as JsonObject;
  const { credentials = {} } = connection;
  return { ...connection, credentials: withoutShort(credentials as JsonObject, 'credentials') };
}

export type Replay = Reads & {
  /** Calls that were not recorded, and those that were not made again, a line each. */
  faults(): string[];
};

/** Answers as recorded, each call once, equal ones in their order. No call leaves this process. */
export function replay(recording: Recording): Replay {
  const left = [...recording.calls];
  const unknown: string[] = [];
  const nothing = createRedactor();
  return {
    async call(call) {
      const request = requestOf(call, nothing);
      const wanted = identityOf(request);
      const at = left.findIndex((one) => identityOf(one) === wanted);
      const [found] = at < 0 ? [] : left.splice(at, 1);
      if (found === undefined) {
        const alike = left.find((one) => one.call === request.call);
        unknown.push(`${request.call} was not recorded${alike ? ' with this body' : ''}.`);
        throw refusal('not_recorded', `${request.call} was not recorded.`);
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
      unknown.push(`${name} was not recorded.`);
      throw refusal('not_recorded', `${name} was not recorded.`);
    },
    faults: () => [...unknown, ...left.map(({ call }) => `${call} was recorded, and not made.`)],
  };
}

/** Method, address and body: headers do not count, nor the order of parameters and fields. */
function identityOf({ kind, method, endpoint, query, base_url = '', body }: Request): string {
  return JSON.stringify([kind, method, endpoint, query, base_url, sorted(body ?? null)]);
}

function requestOf(call: OutgoingCall, redactor: Redactor): Request {
  const { method, endpoint, url, query = '', baseUrlOverride } = call.args;
  const params = new URLSearchParams(query);
  params.sort();
  const request = {
    call: titleOfCall(call),
    ...{ kind: call.name, method, endpoint: url ?? `/${(endpoint ?? '').replace(/^\/+/, '')}` },
    query: params.toString(),
    ...(baseUrlOverride !== undefined && { base_url: baseUrlOverride }),
    ...(call.body !== undefined && call.body.length > 0 && { body: bodyIn(call.body) }),
  };
  return redactor.json(asJson(request) as JsonObject) as unknown as Request;
}

function answerOf({ value, body }: CallAnswer, redactor: Redactor): RecordedCall['answer'] {
  const { status, statusText, url, headers } = value;
  const answer = {
    ...{ status, status_text: statusText, headers: lastingHeaders(headers) },
    ...(url !== undefined && { url }),
    body: body.length === 0 ? null : bodyIn(body),
  };
  return redactor.json(asJson(answer) as JsonObject) as unknown as RecordedCall['answer'];
}

/** JSON only where it is the same text again. */
function bodyIn(bytes: Buffer): Body {
  const text = bytes.toString('utf8');
  if (!Buffer.from(text).equals(bytes)) return { base64: bytes.toString('base64') };
  try {
    const json = JSON.parse(text) as Json;
    const end = /\s*$/.exec(text)?.[0] ?? '';
    for (const spaces of [0, 2])
      if (JSON.stringify(json, null, spaces) + end === text) return { json, spaces, end };
  } catch {
    // Any other text.
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
