/**
 * `trellis provider new`: writes the definition of a provider from a few answers, tests its OAuth flow, and names what is
 * missing.
 *
 * The flow of an OAUTH2 definition runs against a provider on loopback: authorization, exchange, a call, refresh, revocation.
 * That provider behaves as the sandbox's profile of the same name or, without a profile, as the standard says. For other
 * modes, the command shows where a call has the credentials. Does not own: the checks (`providers/catalog.ts`), the requests
 * (`auth-modes/`).
 */
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { stringify } from 'yaml';
import { standard } from '../../sandbox/profiles/profile.ts';
import { profileOf } from '../../sandbox/profiles/profiles.ts';
import { startProfile } from '../../sandbox/profiles/provider.ts';
import { authModes } from '../auth-modes/modes.ts';
import { authorizationRequest, exchangeCode, refreshToken } from '../auth-modes/oauth2.ts';
import { address, type OAuthContext } from '../auth-modes/oauth2-request.ts';
import { apiBase, placeCredentials, withQuery } from '../auth-modes/place.ts';
import { revokeToken } from '../auth-modes/revocation.ts';
import type { Fetch } from '../outbound/outbound.ts';
import { CatalogError, openCatalog } from '../providers/catalog.ts';
import type { ProviderDefinition } from '../providers/definition.ts';

/** The modes that a few answers describe. */
const newModes = ['OAUTH2', 'OAUTH2_CC', 'API_KEY', 'BASIC', 'TWO_STEP', 'JWT'] as const;
type NewMode = (typeof newModes)[number];
export type NewProviderOptions = {
  mode?: NewMode | undefined;
  title?: string | undefined;
  docs?: string | undefined;
  api?: string | undefined;
  authorization?: string | undefined;
  token?: string | undefined;
  header?: string | undefined;
  out?: string | undefined;
};
type Answers = {
  mode: NewMode;
  title: string;
  docs: string;
  api: string;
  authorization: string;
  token: string;
  header: string | undefined;
};

/** Exits with 1 if the definition is wrong or its flow fails. The file is written in any case, except over another one. */
export async function newProviderCommand(name: string, options: NewProviderOptions): Promise<number> {
  const file = resolve(options.out ?? '.', `${name}.yaml`);
  if (existsSync(file)) {
    console.error(`${file} exists already.`);
    return 1;
  }
  const answers = await completeAnswers(options);
  if (answers === undefined) return 1;
  const text = definitionText(answers);
  await writeFile(file, text);
  console.log(`${file} is written.`);
  const catalog = openCatalog(undefined, authModes);
  let definition: ProviderDefinition;
  try {
    ({ definition } = catalog.read({ name, text }));
  } catch (error) {
    if (!(error instanceof CatalogError)) throw error;
    for (const { line, message } of error.faults) console.error(`${file}:${line}: ${message}`);
    return 1;
  }
  const isOAuth = definition.auth_mode === 'OAUTH2';
  if (!isOAuth) showCall(definition);
  const isWorking = !isOAuth || (await testFlow(definition));
  for (const line of missingIn(definition)) console.log(`missing: ${line}`);
  return isWorking ? 0 : 1;
}

const questions: Record<keyof Omit<Answers, 'header'>, string> = {
  mode: `Auth mode (${newModes.join(', ')})`,
  title: 'Name as people see it',
  docs: "Address of the provider's documentation",
  api: 'Base address of the API',
  authorization: 'Address of the authorization page',
  token: 'Address of the token endpoint, or of the sign-in',
};

/** Asks for what the options lack, if a person types. Undefined if something is missing. */
async function completeAnswers({
  header,
  out: _out,
  ...given
}: NewProviderOptions): Promise<Answers | undefined> {
  const answers: Partial<Record<keyof typeof questions, string | undefined>> = { ...given };
  const needed = (): (keyof typeof questions)[] => [
    ...(['mode', 'title', 'docs', 'api'] as const),
    ...(answers.mode === 'OAUTH2' ? (['authorization'] as const) : []),
    ...(answers.mode === 'API_KEY' || answers.mode === 'BASIC' ? [] : (['token'] as const)),
  ];
  if (process.stdin.isTTY) {
    const terminal = createInterface({ input: process.stdin, output: process.stdout });
    for (const key of ['mode', 'title', 'docs', 'api', 'authorization', 'token'] as const)
      if (answers[key] === undefined && needed().includes(key))
        answers[key] = (await terminal.question(`${questions[key]}: `)).trim();
    terminal.close();
  }
  const lacking = needed().filter((key) => !answers[key]);
  if (!newModes.some((mode) => mode === answers.mode)) lacking.unshift('mode');
  if (lacking.length > 0) {
    console.error(`Missing: ${[...new Set(lacking)].map((key) => `--${key}`).join(', ')}.`);
    return undefined;
  }
  return { authorization: '', token: '', ...answers, header } as Answers;
}

function definitionText({ mode, title, docs, api, authorization, token, header }: Answers): string {
  // biome-ignore-start lint/suspicious/noTemplateCurlyInString: templates of definitions
  const ofMode: Record<NewMode, object> = {
    OAUTH2: { authorization: { url: authorization }, token: { url: token } },
    OAUTH2_CC: { token: { url: token } },
    API_KEY: {
      placement: [
        header === undefined
          ? { in: 'header', name: 'Authorization', value: 'Bearer ${credentials.apiKey}' }
          : { in: 'header', name: header, value: '${credentials.apiKey}' },
      ],
    },
    BASIC: {},
    TWO_STEP: {
      credentials: {
        username: { title: 'User name', description: 'The name of your user.' },
        password: { title: 'Password', description: 'Your password.', secret: true },
      },
      login: {
        url: token,
        json: { username: '${credentials.username}', password: '${credentials.password}' },
        answer: { token: 'token', expires_in: 'expires_in' },
      },
    },
    JWT: {
      token: { url: token },
      assertion: {
        use: 'grant',
        algorithm: 'RS256',
        claims: { iss: '${credentials.issuerId}', aud: token },
        life_s: 300,
      },
      credentials: {
        issuerId: { title: 'Client ID', description: 'The ID of the client that owns the key.' },
      },
    },
  };
  // biome-ignore-end lint/suspicious/noTemplateCurlyInString: as above
  return stringify({
    display_name: title,
    categories: ['other'],
    docs,
    auth_mode: mode,
    ...ofMode[mode],
    api: { base_url: api },
  });
}

const client = { clientId: 'client-1', clientSecret: 'secret-1', scopes: [] };
const redirectUri = 'https://trellis.invalid/oauth/callback';

/** Prints each step of the flow. Returns whether all of them worked. */
async function testFlow(definition: ProviderDefinition): Promise<boolean> {
  const own = profileOf(definition.name);
  const profile = own ?? standard;
  console.log(
    own
      ? 'The sandbox simulates this provider.'
      : 'The sandbox simulates a provider that follows the standard.',
  );
  const context: OAuthContext & { now: Date } = {
    ...{ definition, values: {}, now: new Date() },
    client: { ...client, scopes: definition.scopes.default },
  };
  const at = (template: string) => address(context, template);
  const tokenUrl = at(definition.token?.url ?? '');
  const api = apiBase({
    ...{ definition, values: {} },
    credentials: { type: 'OAUTH2', access_token: 'x', raw: {} },
  });
  const provider = await startProfile(profile, {
    client: { id: client.clientId, secret: client.clientSecret, redirectUri },
    endpoints: {
      ...{ authorization: at(definition.authorization?.url ?? ''), token: tokenUrl, api },
      refresh: definition.refresh.url === undefined ? tokenUrl : at(definition.refresh.url),
      revocation: definition.revocation && at(definition.revocation.url),
    },
    now: context.now,
  });
  const viaLoopback: Fetch = (url, init) => fetch(url.replace(/^https?:\/\//, `${provider.origin}/`), init);
  const get = (url: string, headers: Record<string, string> = {}) =>
    viaLoopback(url, { method: 'GET', headers, redirect: 'manual', signal: AbortSignal.timeout(5_000) });
  const call = async (accessToken: string) => {
    const credentials = { type: 'OAUTH2', access_token: accessToken, raw: {} } as const;
    const { headers, query } = placeCredentials({ definition, credentials, values: {} });
    return report('API call', (await get(withQuery(`${api}/any`, query), headers)).status === 200);
  };
  try {
    const asked = await authorizationRequest({ ...context, redirectUri });
    const location = (await get(asked.url)).headers.get('location');
    const callbackParams = new URL(location ?? redirectUri).searchParams;
    if (!report('authorization', callbackParams.has('code'), callbackParams.get('error'))) return false;
    const { state: expectedState, codeVerifier } = asked;
    const exchanged = await exchangeCode({
      ...{ ...context, fetch: viaLoopback, callbackParams, redirectUri, expectedState, codeVerifier },
    });
    if (!exchanged.ok) return report('code exchange', false, exchanged.fault.error);
    report('code exchange', true);
    const { accessToken, refreshToken: first } = exchanged.tokens;
    let isWorking = await call(accessToken);
    if (first === undefined) console.log('The provider gives no refresh token.');
    else {
      const refreshed = await refreshToken({ ...context, fetch: viaLoopback, refreshToken: first });
      isWorking =
        report('refresh', refreshed.ok, refreshed.ok ? undefined : refreshed.fault.error) && isWorking;
      if (definition.revocation !== undefined) {
        const token = (refreshed.ok ? refreshed.tokens.refreshToken : undefined) ?? first;
        const ended = await revokeToken({ ...context, fetch: viaLoopback, token });
        isWorking = report('revocation', ended.ok, ended.ok ? undefined : ended.fault.error) && isWorking;
      }
    }
    return isWorking;
  } finally {
    await provider.stop();
  }
}

function report(step: string, isDone: boolean, error?: string | null): boolean {
  console.log(`${isDone ? 'ok' : 'failed'}: ${step}${error ? ` (${error})` : ''}`);
  return isDone;
}

/** Prints where the credentials are in a call. */
function showCall({ placement, api, auth_mode }: ProviderDefinition): void {
  const places = placement.length > 0 ? placement : (authModes.get(auth_mode)?.placement ?? []);
  for (const { in: where, name, value } of places)
    console.log(`A call of ${api.base_url} has the ${where} ${name}: ${value}`);
}

/** The recommended parts that the definition lacks, with what each is for. */
function missingIn(definition: ProviderDefinition): string[] {
  const { source, verification, scopes, revocation, userinfo, refresh, setup, auth_mode } = definition;
  const isOAuth = auth_mode === 'OAUTH2';
  const cases: [isMissing: boolean, text: string][] = [
    [source === undefined, '`level` and `source`: the page on which you found the facts, and the day'],
    [verification === undefined, '`verification`: a harmless call that shows whether credentials work'],
    [
      isOAuth && Object.keys(scopes.catalogue).length === 0,
      '`scopes`: their names and meaning, and the defaults',
    ],
    [isOAuth && revocation === undefined, '`revocation`: the endpoint that ends a token'],
    [isOAuth && userinfo === undefined, '`userinfo`: the endpoint that names the account'],
    [
      isOAuth && refresh.url === undefined,
      '`refresh`: whether refresh tokens rotate, and the life of tokens without `expires_in`',
    ],
    [setup === undefined && isOAuth, '`setup`: the steps to register a client'],
  ];
  return cases.flatMap(([isMissing, text]) => (isMissing ? [text] : []));
}
