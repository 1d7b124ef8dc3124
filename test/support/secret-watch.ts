// Checks that no secret is in a log line, an error or a response of a service under test.
//
// Each service that tests start passes its log lines, its responses and the secrets that it creates to a watch. Closing the
// watch fails if a secret is in a log line, in a response (body or header) outside of `allowedDisclosures`, or in plain text
// in the database or in a file of keys. Earlier log lines and responses are searched again when a secret becomes known.
// `secret-watch-finder.ts` has the forms of a secret, `secret-watch-server.ts` passes the responses, and
// `secret-watch-database.ts` reads the database.
//
// Not searched: frames of a WebSocket, the middle of a response over 256 KB, a table beyond its first 32 MB, and secrets of
// fewer than 12 characters.

import assert from 'node:assert/strict';
import type { Queryable } from '../../server/db/pool.ts';
import type { Scope } from '../../server/http/auth/caller.ts';
import type { Fetch } from '../../server/outbound/outbound.ts';
import { openBackupDirectory } from './backup-directory.ts';
import { textsOfDatabase } from './secret-watch-database.ts';
import { createFinder, formsOfSecret } from './secret-watch-finder.ts';

export type SecretKind =
  | 'key'
  | 'master_key'
  | 'data_key'
  | 'session_token'
  | 'ticket'
  | 'signing_key'
  | 'client_secret'
  | 'access_token'
  | 'refresh_token'
  | 'id_token'
  | 'code'
  | 'code_verifier'
  | 'state'
  | 'cookie'
  | 'password'
  | 'link';

type AllowedDisclosure = {
  route: RegExp;
  kinds: SecretKind[];
  /** What the caller's key must be allowed. */
  scope?: Scope;
  /** The header that may hold it; without a name it is the body. */
  header?: string;
  /** What stood in the request alone. */
  isSentBack?: true;
};

const oneConnection = String.raw`^GET /connections?/(?!metadata/?\?)[^/?]+/?\?(.*&)?(provider_config_key|integration_id)=`;
/** Links of invitations and of resets: the token stands behind the #. */
const linkMaker = /^POST \/users\/(invitations|[\w-]+\/password-reset)(\?|$)/;
const trip = /^GET \/oauth\/(connect\/|callback\?)/;
const imports = /^POST \/connections(\?|$)/;
const credentials: SecretKind[] = ['access_token', 'id_token', 'password'];
/** The responses that may contain a secret, if they are successful and the caller may have it. */
const allowedDisclosures: AllowedDisclosure[] = [
  {
    // What renews the credentials: the secret of a connection's own client stands for a refresh token.
    route: new RegExp(`(?=.*[?&]refresh_token=true)${oneConnection}`),
    kinds: ['refresh_token', 'client_secret'],
    scope: 'connections:refresh_tokens',
  },
  {
    route: new RegExp(oneConnection),
    kinds: credentials,
    scope: 'connections:credentials',
  },
  { route: imports, kinds: credentials, scope: 'connections:credentials' },
  // What was imported goes back to who sent it.
  { route: imports, kinds: credentials, scope: 'connections:write', isSentBack: true },
  {
    route: /^POST \/connect\/sessions(\/reconnect)?(\?|$)/,
    kinds: ['session_token'],
    scope: 'connections:write',
  },
  { route: /^POST \/environment\/api-keys(\?|$)/, kinds: ['key'], scope: 'keys' },
  { route: /^POST \/tickets(\?|$)/, kinds: ['ticket'] },
  {
    route: /^(GET \/environment\/webhook-signing-key|POST \/environment\/webhook-signing-key\/rotate)(\?|$)/,
    kinds: ['signing_key'],
    scope: 'keys',
  },
  { route: /^GET \/connect\/?\?session_token=/, kinds: ['session_token'] },
  {
    route: /^GET \/integrations\/[^/?]+\?.*include=[\w,]*credentials/,
    kinds: ['client_secret'],
    scope: 'integrations:secrets',
  },
  // The browser that begins, and the one that is sent to the provider once more.
  { route: trip, kinds: ['state'], header: 'location' },
  { route: trip, kinds: ['cookie'], header: 'set-cookie' },
  // A callback at another host than BASE_URL's is sent on to it.
  { route: /^GET \/oauth\/callback\?/, kinds: ['code'], header: 'location' },
  // The browser that signs in, and the owner who makes a link for somebody.
  { route: /^(GET|POST) \/api\/auth\//, kinds: ['cookie'], header: 'set-cookie' },
  { route: linkMaker, kinds: ['link'] },
  { route: /^POST \/api\/auth\/sign-in\/social$/, kinds: ['state'] },
  { route: /^POST \/api\/auth\/sign-in\/social$/, kinds: ['state'], header: 'location' },
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
  code_verifier: 'code_verifier',
  connect_session_token: 'session_token',
  client_assertion: 'client_secret',
  apiKey: 'password',
  password: 'password',
};
/** Where the client is the connection's own, and not the integration's, its secret is what renews the token. */
const kindOfOwnClient: Record<string, SecretKind> = {
  ...kindOfField,
  client_secret: 'refresh_token',
  token: 'access_token',
};
const ownClientForm = /^POST \/oauth2\/auth\//;
/** Of Standard Webhooks: what follows is the key in Base64. */
const signingPrefix = 'whsec_';
/** Shorter ones are words of tests, and would be found anywhere. */
const shortest = 12;
/** Of an answer that is longer, its beginning and its end are looked at: a page of records is megabytes. */
const maxOfAnswer = 256 * 1024;
/** What is held goes to a file when it has grown to this many characters. */
const maxHeld = 16 * 1024 * 1024;
export type SecretWatch = ReturnType<typeof openSecretWatch>;

/** What a caller sent and got; `scopes` are those of the key that asked. */
type WatchedAnswer = {
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
  /** The request, where some of it may come back. */
  sent: string;
};
type Held = { lines: string[]; answers: HeldAnswer[] };

export function openSecretWatch() {
  /** By what names them: the text itself, or the hexadecimal of bytes. */
  const secrets = new Map<string, { kind: SecretKind; secret: string | Buffer }>();
  const found = new Set<string>();
  let held: Held = { lines: [], answers: [] };
  let heldCharacters = 0;
  const backupDir = openBackupDirectory<Held>();

  const made = (kind: SecretKind, secret: unknown) => {
    if (!(typeof secret === 'string' || Buffer.isBuffer(secret)) || secret.length < shortest) return;
    const name = typeof secret === 'string' ? secret : secret.toString('hex');
    if (!secrets.has(name)) secrets.set(name, { kind, secret });
  };
  /** Whatever stands in a field that carries a secret, however deep. */
  const madeIn = (value: unknown, kinds = kindOfField): void => {
    const left = [{ value, kinds }];
    for (let next = left.pop(); next !== undefined; next = left.pop()) {
      if (typeof next.value !== 'object' || next.value === null) continue;
      const hasOwnClient = 'type' in next.value && next.value.type === 'OAUTH2_CC';
      const ofObject = hasOwnClient ? kindOfOwnClient : next.kinds;
      for (const [name, inner] of Object.entries(next.value)) {
        // A field may be called `constructor`.
        const isNamed = !Array.isArray(next.value) && Object.hasOwn(ofObject, name);
        const kind = isNamed ? ofObject[name] : undefined;
        if (kind !== undefined && typeof inner === 'string') made(kind, inner);
        else left.push({ value: inner, kinds: ofObject });
      }
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
    if (name === 'set-cookie')
      made('cookie', /^(?:[\w-]+_connect_\w+|[\w.-]*session_token)=([^;]+)/.exec(value)?.[1]);
  };

  function hold(characters: number): void {
    heldCharacters += characters;
    if (heldCharacters <= maxHeld) return;
    backupDir.put(held);
    held = { lines: [], answers: [] };
    heldCharacters = 0;
  }

  const createSearch = () =>
    createFinder(Array.from(secrets, ([name, { secret }]) => [name, formsOfSecret(secret)] as const));
  type Search = ReturnType<typeof createSearch>;

  function lookThrough({ lines, answers }: Held, search: Search): void {
    for (const line of search(lines.join('\n')).size === 0 ? [] : lines) {
      for (const name of search(line).keys())
        found.add(`${secrets.get(name)?.kind} in the log: ${masked(line, search)}`);
    }
    for (const answer of answers) {
      const ofCaller = new Set(search(answer.sent).keys());
      for (const [header, text] of answer.parts) {
        for (const name of search(text).keys()) {
          const { kind } = secrets.get(name)!;
          if (mayGive({ ...answer, kind, header, isOfCaller: ofCaller.has(name) })) continue;
          const part = header === '' ? '' : `the header ${header} of `;
          found.add(`${kind} in ${part}the answer ${answer.status} of ${masked(answer.route, search)}`);
        }
      }
    }
  }
  /** A finding is printed, so that it holds none of the secrets. */
  function masked(text: string, search: Search): string {
    let left = text;
    for (const forms of search(text).values()) for (const form of forms) left = left.replaceAll(form, '***');
    return left;
  }

  /** Every place where a secret was seen that should not be there. */
  function leaks(): string[] {
    const search = createSearch();
    for (const earlier of backupDir.all()) lookThrough(earlier, search);
    lookThrough(held, search);
    return [...found];
  }

  return {
    made,
    madeIn,
    /** A text that was sealed: JSON with fields by which secrets travel, or a secret itself. */
    sealed(text: string): void {
      madeIn(jsonOf(text));
      if (!text.startsWith(signingPrefix)) return;
      made('signing_key', text);
      made('signing_key', Buffer.from(text.slice(signingPrefix.length), 'base64'));
    },
    /** For a logger to write to. */
    log: {
      write(line: string) {
        held.lines.push(line);
        hold(line.length);
      },
    },
    /** What a caller sent and got; `route` is method and path with the query. Secrets in it become known. */
    answered(route: string, { status, text, headers = [], sent, scopes = [] }: WatchedAnswer): void {
      madeIn(
        typeof sent === 'string' ? jsonOf(sent) : sent,
        ownClientForm.test(route) ? kindOfOwnClient : undefined,
      );
      if (linkMaker.test(route)) made('link', linkOf(text)?.split('#')[1]);
      if (trip.test(route)) madeInTrip(new URL(route.split(' ')[1] ?? '', 'http://x').searchParams);
      const { data } = jsonOf(text) as { data?: Record<string, unknown> };
      if (route.startsWith('POST /connect/sessions')) made('session_token', data?.token);
      if (route === 'POST /environment/api-keys') made('key', data?.secret);
      if (route === 'POST /tickets') made('ticket', data?.ticket);
      made('signing_key', data?.webhook_signing_key);
      const kept =
        text.length <= maxOfAnswer ? text : text.slice(0, maxOfAnswer / 2) + text.slice(-maxOfAnswer / 2);
      const parts: HeldAnswer['parts'] = [['', kept]];
      for (const [name, value] of headers) {
        if (trip.test(route) || route.includes(' /api/auth/')) madeInHeader(name, value);
        parts.push([name, value]);
      }
      const back = !isKept(route) ? '' : typeof sent === 'string' ? sent : JSON.stringify(sent ?? '');
      held.answers.push({ route, status, scopes, parts, sent: back });
      hold(parts.reduce((sum, [, { length }]) => sum + length, back.length));
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
    /** Looks through the database; to be called last, since it finds what is known by now. */
    async readDatabase(db: Queryable): Promise<void> {
      const search = createSearch();
      for await (const { table, text } of textsOfDatabase(db)) {
        for (const name of search(text).keys()) found.add(`${secrets.get(name)?.kind} in the table ${table}`);
      }
    },
    /** Looks through what was written elsewhere; to be called last, as `readDatabase`. */
    readText(place: string, text: string): void {
      for (const name of createSearch()(text).keys()) found.add(`${secrets.get(name)?.kind} in ${place}`);
    },
    leaks,
    assertClean(): void {
      assert.ok(secrets.size > 0, 'the watch knows no secret, so it saw nothing');
      const all = leaks();
      backupDir.close();
      assert.deepEqual(all, []);
    },
  };
}

/** Whether the request has to be told with the answer, since some of it may come back. */
export function isKept(route: string): boolean {
  return allowedDisclosures.some((allowed) => allowed.isSentBack === true && allowed.route.test(route));
}

function mayGive({
  route,
  status,
  scopes,
  kind,
  header,
  isOfCaller,
}: Omit<HeldAnswer, 'parts' | 'sent'> & {
  kind: SecretKind;
  header: string;
  isOfCaller: boolean;
}): boolean {
  const mayHave = (scope?: Scope) => scope === undefined || scopes.includes('*') || scopes.includes(scope);
  return (
    status < 400 &&
    allowedDisclosures.some(
      (allowed) =>
        (allowed.header ?? '') === header &&
        allowed.kinds.includes(kind) &&
        mayHave(allowed.scope) &&
        (allowed.isSentBack !== true || isOfCaller) &&
        allowed.route.test(route),
    )
  );
}

function linkOf(text: string): string | undefined {
  return (jsonOf(text) as { data?: { link?: string } }).data?.link;
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
