// No secret in any log line, error or answer: watched over everything a test run does with a service.
//
// Every service that tests start tells its watch what is logged and answered, and which secrets were made on the way.
// Closing it fails where a secret stands in a log line, in an answer that is not one of the few that give it to who
// asked for it, or readable in the database.

import assert from 'node:assert/strict';
import type { Fetch } from '../../server/auth-modes/token-response.ts';
import type { Queryable } from '../../server/db/pool.ts';

export type SecretKind =
  | 'key'
  | 'master_key'
  | 'session_token'
  | 'client_secret'
  | 'access_token'
  | 'refresh_token'
  | 'id_token'
  | 'code'
  | 'password';

/** What stands for a connection, but for what renews it. */
const credentials: SecretKind[] = ['access_token', 'id_token', 'password'];
/** The answers that may hold a secret, successful ones alone: for the caller that asked and may have it. */
const givers: { route: RegExp; kinds: SecretKind[] }[] = [
  { route: /^GET \/connections?\/[^/?]+\?.*refresh_token=true/, kinds: ['refresh_token', ...credentials] },
  { route: /^GET \/connections?\/[^/?]+\?/, kinds: credentials },
  { route: /^POST \/connections$/, kinds: credentials },
  { route: /^POST \/connect\/sessions(\/reconnect)?$/, kinds: ['session_token'] },
  { route: /^GET \/connect\/\?session_token=/, kinds: ['session_token'] },
  { route: /^GET \/integrations\/[^/?]+\?.*include=credentials/, kinds: ['client_secret'] },
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
/** What is held is looked through and let go when it has grown to this. */
const mostHeld = 16 * 1024 * 1024;
/** Sealed payloads, by far the largest tables; what they hold is the application's. */
const tablesLeftOut = ['record', 'payload'];

export type SecretWatch = ReturnType<typeof openSecretWatch>;

export function openSecretWatch() {
  const secrets = new Map<string, SecretKind>();
  const found = new Set<string>();
  let lines: string[] = [];
  let answers: { route: string; status: number; text: string }[] = [];
  let heldBytes = 0;

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

  /** Looks through what is held, and lets it go. */
  function lookThrough(): void {
    const log = lines.join('\n');
    const everyAnswer = answers.map(({ text }) => text).join('\n');
    for (const [secret, kind] of secrets) {
      if (log.includes(secret)) {
        const line = lines.find((text) => text.includes(secret));
        found.add(`${kind} in the log: ${line?.replaceAll(secret, '***')}`);
      }
      if (!everyAnswer.includes(secret)) continue;
      for (const { route, status, text } of answers) {
        if (!text.includes(secret) || mayGive({ route, status, kind })) continue;
        found.add(`${kind} in the answer ${status} of ${route}`);
      }
    }
    lines = [];
    answers = [];
    heldBytes = 0;
  }

  function hold(bytes: number): void {
    heldBytes += bytes;
    if (heldBytes > mostHeld) lookThrough();
  }

  /** Every place where a secret was seen that should not be there. */
  function leaks(): string[] {
    lookThrough();
    return [...found];
  }

  return {
    made,
    madeIn,
    /** For a logger to write to. */
    log: {
      write(line: string) {
        lines.push(line);
        hold(line.length);
      },
    },
    /** What a caller sent and got; secrets in the body of either become known. */
    answered(route: string, { status, text, sent }: { status: number; text: string; sent?: unknown }): void {
      madeIn(typeof sent === 'string' ? undefined : sent);
      const { data } = jsonOf(text) as { data?: { token?: unknown } };
      if (route.startsWith('POST /connect/sessions')) made('session_token', data?.token);
      const kept =
        text.length <= mostOfAnswer ? text : text.slice(0, mostOfAnswer / 2) + text.slice(-mostOfAnswer / 2);
      answers.push({ route, status, text: kept });
      hold(kept.length);
    },
    /** The same way to the provider, of which the watch learns codes and tokens. */
    watched:
      (fetchFor: (of: { isTest: boolean }) => Fetch) =>
      (of: { isTest: boolean }): Fetch =>
      async (url, init) => {
        madeIn(Object.fromEntries(new URLSearchParams(init.body ?? '')));
        const answer = await fetchFor(of)(url, init);
        return { ...answer, body: answer.body && tee(answer.body, (text) => madeIn(jsonOf(text))) };
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
      assert.deepEqual(leaks(), []);
    },
  };
}

function mayGive({ route, status, kind }: { route: string; status: number; kind: SecretKind }): boolean {
  return status < 400 && givers.some((giver) => giver.route.test(route) && giver.kinds.includes(kind));
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
