// No secret in any log line, error or answer: watched over everything a test run does with a service.
//
// Every service that tests start tells its watch what is logged and answered, and which secrets were made on the way.
// Closing it fails where a secret stands in a log line, in an answer (body or header) that is not one of the few that
// give it to who asked for it and may have it, or readable in the database. A secret is looked for as it is, as part of
// an address or form, and inside Base64. What was logged and answered before a secret became known is looked through too.

import assert from 'node:assert/strict';
import type { Fetch } from '../../server/auth-modes/token-response.ts';
import type { Queryable } from '../../server/db/pool.ts';
import type { Scope } from '../../server/http/caller.ts';
import { openShelf } from './shelf.ts';

export type SecretKind =
  | 'key'
  | 'master_key'
  | 'session_token'
  | 'ticket'
  | 'client_secret'
  | 'access_token'
  | 'refresh_token'
  | 'id_token'
  | 'code'
  | 'state'
  | 'cookie'
  | 'password';

type Giver = {
  route: RegExp;
  kinds: SecretKind[];
  /** What the caller's key must be allowed. */
  scope?: Scope;
  /** The header that may hold it; without a name it is the body. */
  header?: string;
};

const oneConnection = String.raw`^GET /connections?/(?!metadata\?)[^/?]+\?(.*&)?provider_config_key=`;
const trip = /^GET \/oauth\/(connect\/|callback\?)/;
/** The answers that may hold a secret, successful ones alone: for the caller that asked and may have it. */
const givers: Giver[] = [
  {
    route: new RegExp(`(?=.*[?&]refresh_token=true)${oneConnection}`),
    kinds: ['refresh_token'],
    scope: 'connections:refresh_tokens',
  },
  {
    route: new RegExp(oneConnection),
    kinds: ['access_token', 'id_token', 'password'],
    scope: 'connections:credentials',
  },
  // What was imported goes back to who sent it.
  {
    route: /^POST \/connections$/,
    kinds: ['access_token', 'id_token', 'password'],
    scope: 'connections:write',
  },
  { route: /^POST \/connect\/sessions(\/reconnect)?$/, kinds: ['session_token'], scope: 'connections:write' },
  { route: /^POST \/environment\/api-keys$/, kinds: ['key'], scope: 'keys' },
  { route: /^POST \/tickets$/, kinds: ['ticket'] },
  { route: /^GET \/connect\/?\?session_token=/, kinds: ['session_token'] },
  {
    route: /^GET \/integrations\/[^/?]+\?.*include=[\w,]*credentials/,
    kinds: ['client_secret'],
    scope: 'integrations:secrets',
  },
  // The browser that begins, and the one that is sent to the provider once more.
  { route: trip, kinds: ['state'], header: 'location' },
  { route: trip, kinds: ['cookie'], header: 'set-cookie' },
];

/** Fields by which secrets travel, in requests and answers alike. */
const kindOfField: Record<string, SecretKind> = {
  access_token: 'access_token',
  refresh_token: 'refresh_token',
  id_token: 'id_token',
  client_secret: 'client_secret',
  clientSecret: 'client_secret',
  webhook_secret: 'client_secret',
  code: 'code',
  code_verifier: 'code',
  apiKey: 'password',
  password: 'password',
};
/** Shorter ones are words of tests, and would be found anywhere. */
const shortest = 12;
/** Of an answer that is longer, its beginning and its end are looked at: a page of records is megabytes. */
const mostOfAnswer = 256 * 1024;
/** What is held goes to a file when it has grown to this many characters. */
const mostHeld = 16 * 1024 * 1024;
/** Sealed payloads, by far the largest tables; what they hold is the application's. */
const tablesLeftOut = ['record', 'payload'];

export type SecretWatch = ReturnType<typeof openSecretWatch>;

/** What a caller sent and got; `scopes` are those of the key that asked. */
export type WatchedAnswer = {
  status: number;
  text: string;
  headers?: Iterable<[string, string]>;
  sent?: unknown;
  scopes?: readonly string[];
};
type HeldAnswer = {
  route: string;
  status: number;
  scopes: readonly string[];
  parts: [header: string, text: string][];
};
type Held = { lines: string[]; answers: HeldAnswer[] };

export function openSecretWatch() {
  const secrets = new Map<string, SecretKind>();
  const found = new Set<string>();
  let held: Held = { lines: [], answers: [] };
  let heldCharacters = 0;
  const shelf = openShelf<Held>();

  const made = (kind: SecretKind, secret: unknown) => {
    if (typeof secret === 'string' && secret.length >= shortest) secrets.set(secret, kind);
  };
  /** Whatever stands in a field that carries a secret. */
  const madeIn = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return;
    for (const [name, inner] of Object.entries(value)) {
      const kind = Array.isArray(value) ? undefined : kindOfField[name];
      if (kind !== undefined && typeof inner === 'string') made(kind, inner);
      else madeIn(inner);
    }
  };

  /** The state of a trip, and the cookie that binds it to a browser. */
  const madeInTrip = (query: URLSearchParams): void => {
    made('state', query.get('state'));
    made('code', query.get('code'));
    made('session_token', query.get('connect_session_token'));
  };
  const madeInHeader = (name: string, value: string): void => {
    if (name === 'location' && URL.canParse(value)) made('state', new URL(value).searchParams.get('state'));
    if (name === 'set-cookie') made('cookie', /^[\w-]+_connect_\w+=([^;]+)/.exec(value)?.[1]);
  };

  function hold(characters: number): void {
    heldCharacters += characters;
    if (heldCharacters <= mostHeld) return;
    shelf.put(held);
    held = { lines: [], answers: [] };
    heldCharacters = 0;
  }

  function lookThrough({ lines, answers }: Held): void {
    const log = lines.join('\n');
    const everyAnswer = answers.flatMap(({ parts }) => parts.map(([, text]) => text)).join('\n');
    for (const [secret, kind] of secrets) {
      for (const form of formsOf(secret, kind)) {
        if (log.includes(form)) {
          const line = lines.find((text) => text.includes(form)) ?? '';
          found.add(`${kind} in the log: ${masked(line.replaceAll(form, '***'))}`);
        }
        if (!everyAnswer.includes(form)) continue;
        for (const answer of answers) {
          for (const [header, text] of answer.parts) {
            if (!text.includes(form) || mayGive({ ...answer, kind, header })) continue;
            const part = header === '' ? '' : `the header ${header} of `;
            found.add(`${kind} in ${part}the answer ${answer.status} of ${masked(answer.route)}`);
          }
        }
      }
    }
  }
  /** A finding is printed, so that it holds none of the secrets. */
  function masked(text: string): string {
    let left = text;
    for (const [secret, kind] of secrets)
      for (const form of formsOf(secret, kind)) left = left.replaceAll(form, '***');
    return left;
  }

  /** Every place where a secret was seen that should not be there. */
  function leaks(): string[] {
    for (const earlier of shelf.all()) lookThrough(earlier);
    lookThrough(held);
    return [...found];
  }

  return {
    made,
    madeIn,
    /** For a logger to write to. */
    log: {
      write(line: string) {
        held.lines.push(line);
        hold(line.length);
      },
    },
    /** What a caller sent and got; `route` is method and path with the query. Secrets in it become known. */
    answered(route: string, { status, text, headers = [], sent, scopes = [] }: WatchedAnswer): void {
      madeIn(typeof sent === 'string' ? undefined : sent);
      if (trip.test(route)) madeInTrip(new URL(route.split(' ')[1] ?? '', 'http://x').searchParams);
      const { data } = jsonOf(text) as { data?: Record<string, unknown> };
      if (route.startsWith('POST /connect/sessions')) made('session_token', data?.token);
      if (route === 'POST /environment/api-keys') made('key', data?.secret);
      if (route === 'POST /tickets') made('ticket', data?.ticket);
      const kept =
        text.length <= mostOfAnswer ? text : text.slice(0, mostOfAnswer / 2) + text.slice(-mostOfAnswer / 2);
      const parts: HeldAnswer['parts'] = [['', kept]];
      for (const [name, value] of headers) {
        if (trip.test(route)) madeInHeader(name, value);
        parts.push([name, value]);
      }
      held.answers.push({ route, status, scopes, parts });
      hold(parts.reduce((sum, [, { length }]) => sum + length, 0));
    },
    /** The same way to the provider, of which the watch learns codes and tokens. */
    watched:
      (fetchFor: (of: { isTest: boolean }) => Fetch) =>
      (of: { isTest: boolean }): Fetch =>
      async (url, init) => {
        madeIn(Object.fromEntries(new URLSearchParams(init.body ?? '')));
        const { status, headers, body } = await fetchFor(of)(url, init);
        return { status, headers, body: body && tee(body, (text) => madeIn(jsonOf(text))) };
      },
    /** Looks through the database, but for records; to be called last, since it finds what is known by now. */
    async readDatabase(db: Queryable): Promise<void> {
      const tables = await db.query<{ name: string }>(
        `select format('%I.%I', schemaname, tablename) as name
         from pg_tables
         where schemaname in ('public', 'pgboss') and tablename <> all($1)`,
        [tablesLeftOut],
      );
      for (const { name } of tables) {
        const [row] = await db.query<{ text: string | null }>(
          `select string_agg(of::text, E'\\n') as text from ${name} of`,
        );
        const text = row?.text ?? '';
        for (const [secret, kind] of secrets) {
          const isThere = text.includes(secret) || text.includes(Buffer.from(secret).toString('hex'));
          if (isThere) found.add(`${kind} in the table ${name}`);
        }
      }
    },
    leaks,
    assertClean(): void {
      assert.ok(secrets.size > 0, 'the watch knows no secret, so it saw nothing');
      const all = leaks();
      shelf.close();
      assert.deepEqual(all, []);
    },
  };
}

function mayGive({
  route,
  status,
  scopes,
  kind,
  header,
}: Omit<HeldAnswer, 'parts'> & { kind: SecretKind; header: string }): boolean {
  const mayHave = (scope?: Scope) => scope === undefined || scopes.includes('*') || scopes.includes(scope);
  return (
    status < 400 &&
    givers.some(
      (giver) =>
        (giver.header ?? '') === header &&
        giver.kinds.includes(kind) &&
        mayHave(giver.scope) &&
        giver.route.test(route),
    )
  );
}

/** Kinds that are sent as `Basic`, with a name before them that may be anything. */
const basicKinds: SecretKind[] = ['client_secret', 'password', 'key'];

/** How a secret may be written: as it is, as part of an address or a form, and inside the Base64 of a longer text. */
function formsOf(secret: string, kind: SecretKind): Set<string> {
  const plain = [secret, encodeURIComponent(secret)];
  const forms = new Set(plain);
  if (!basicKinds.includes(kind)) return forms;
  for (const text of plain) {
    for (const before of [0, 1, 2]) {
      const bytes = Buffer.concat([Buffer.alloc(before), Buffer.from(text)]);
      // The characters that depend on the secret alone, whatever stands before and after it.
      const first = Math.ceil((before * 8) / 6);
      const last = Math.floor((bytes.length * 8) / 6);
      forms.add(bytes.toString('base64').slice(first, last));
      forms.add(bytes.toString('base64url').slice(first, last));
    }
  }
  return forms;
}

function jsonOf(text: string): object {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}

async function* tee(
  body: AsyncIterable<Uint8Array>,
  whole: (text: string) => void,
): AsyncIterable<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of body) {
    chunks.push(chunk);
    yield chunk;
  }
  whole(Buffer.concat(chunks).toString('utf8'));
}
