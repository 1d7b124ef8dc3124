/**
 * `trellis provider new`: writes the definition of a provider from a few answers, tests its OAuth flow, and names what is
 * missing.
 *
 * The flow of an OAUTH2 definition runs against a provider on loopback: authorization, exchange, a call, refresh. That
 * provider behaves as the sandbox's profile of the same name or, without a profile, as the standard says. For other
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
import type { Fetch } from '../outbound/outbound.ts';
import { CatalogError, openCatalog } from '../providers/catalog.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { providerName } from '../providers/source.ts';
import { newProviderModes } from './commands.ts';

type NewMode = (typeof newProviderModes)[number];
export type NewProviderOptions = {
  mode?: NewMode | undefined;
  header?: string | undefined;
  out?: string | undefined;
} & { [answer in keyof typeof questions]?: string | undefined };
type Answers = Omit<NewProviderOptions, 'mode' | 'header' | 'out'> & {
  mode: NewMode;
  header?: string | undefined;
};

/**
 * Exits with 1 if the definition is wrong or its flow fails. The file is written in any case, except over another one or
 * under a wrong name.
 */
export async function newProviderCommand(name: string, options: NewProviderOptions): Promise<number> {
  if (!providerName.test(name)) {
    console.error('The name must be lower-case with hyphens.');
    return 1;
  }
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
  const isOAuth = answers.mode === 'OAUTH2';
  if (!isOAuth) showCall(definition);
  const isWorking = !isOAuth || (await testFlow(definition));
  for (const part of [...recommended, ...(isOAuth ? recommendedForOAuth : [])])
    console.log(`missing: ${part}`);
  return isWorking ? 0 : 1;
}

const questions = {
  title: 'Name as people see it',
  docs: "Address of the provider's documentation",
  api: 'Base address of the API',
  request: 'Address of the endpoint for temporary credentials',
  authorization: 'Address of the authorization page',
  token: 'Address of the token endpoint, of the sign-in, or of STS',
  service: 'Service that signatures are for',
  region: 'Region that signatures are for',
};
type Question = keyof typeof questions;

/** Asks for what the options lack, if a person types. Undefined if something is missing. */
async function completeAnswers({ out: _out, ...given }: NewProviderOptions): Promise<Answers | undefined> {
  const answers: NewProviderOptions = { ...given };
  const terminal = process.stdin.isTTY
    ? createInterface({ input: process.stdin, output: process.stdout })
    : undefined;
  const ask = async (question: string) => (await terminal?.question(`${question}: `))?.trim() || undefined;
  const typed = answers.mode ?? (await ask(`Auth mode (${newProviderModes.join(', ')})`));
  const mode = newProviderModes.find((name) => name === typed);
  const needed: Question[] = ['title', 'docs', 'api', ...(mode === undefined ? [] : newModes[mode].asks)];
  if (mode !== undefined) for (const key of needed) answers[key] ??= await ask(questions[key]);
  terminal?.close();
  const lacking = [...(mode === undefined ? ['mode'] : []), ...needed.filter((key) => !answers[key])];
  if (mode !== undefined && lacking.length === 0) return { ...answers, mode };
  console.error(`Missing: ${lacking.map((key) => `--${key}`).join(', ')}.`);
  return undefined;
}

// biome-ignore-start lint/suspicious/noTemplateCurlyInString: templates of definitions
/** What a definition of the mode asks for besides title, documentation and API, and its sections of the mode. */
const newModes: Record<NewMode, { asks: Question[]; sections: (answers: Answers) => object }> = {
  OAUTH2: {
    asks: ['authorization', 'token'],
    sections: ({ authorization, token }) => ({
      authorization: { url: authorization },
      token: { url: token },
    }),
  },
  OAUTH2_CC: { asks: ['token'], sections: ({ token }) => ({ token: { url: token } }) },
  OAUTH1: {
    asks: ['request', 'authorization', 'token'],
    sections: ({ request, authorization, token }) => ({
      authorization: { url: authorization },
      oauth1: { request_url: request },
      token: { url: token },
    }),
  },
  API_KEY: {
    asks: [],
    sections: ({ header }) => ({
      placement: [
        header === undefined
          ? { in: 'header', name: 'Authorization', value: 'Bearer ${credentials.apiKey}' }
          : { in: 'header', name: header, value: '${credentials.apiKey}' },
      ],
    }),
  },
  BASIC: { asks: [], sections: () => ({}) },
  TWO_STEP: {
    asks: ['token'],
    sections: ({ token }) => ({
      credentials: {
        username: { title: 'User name', description: 'The name of your user.' },
        password: { title: 'Password', description: 'Your password.', secret: true },
      },
      login: {
        url: token,
        json: { username: '${credentials.username}', password: '${credentials.password}' },
        answer: { token: 'token', expires_in: 'expires_in' },
      },
    }),
  },
  JWT: {
    asks: ['token'],
    sections: ({ token }) => ({
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
    }),
  },
  AWS_SIGV4: {
    asks: ['service', 'region'],
    sections: ({ service, region }) => ({ signature: { service, region } }),
  },
  AWS_ROLE: {
    asks: ['token', 'service', 'region'],
    sections: ({ token, service, region }) => ({
      connection_config: {
        role_arn: {
          title: 'Role ARN',
          description: 'The role to assume.',
          pattern: String.raw`arn:aws:iam::\d{12}:role/[\w+=,.@/-]{1,512}`,
        },
      },
      signature: {
        service,
        region,
        assume_role: { url: token, role_arn: '${connectionConfig.role_arn}' },
      },
    }),
  },
  NONE: { asks: [], sections: () => ({}) },
};
// biome-ignore-end lint/suspicious/noTemplateCurlyInString: as above

function definitionText(answers: Answers): string {
  const { mode, title, docs, api } = answers;
  return stringify({
    display_name: title,
    categories: ['other'],
    docs,
    auth_mode: mode,
    ...newModes[mode].sections(answers),
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
    definition,
    values: {},
    now: new Date(),
    client: { ...client, scopes: definition.scopes.default },
  };
  const at = (template: string) => address(context, template);
  const tokenUrl = at(definition.token?.url ?? '');
  const api = apiBase({
    definition,
    values: {},
    credentials: { type: 'OAUTH2', access_token: 'x', raw: {} },
  });
  const provider = await startProfile(profile, {
    client: { id: client.clientId, secret: client.clientSecret, redirectUri },
    endpoints: {
      authorization: at(definition.authorization?.url ?? ''),
      api,
      token: tokenUrl,
      refresh: tokenUrl,
    },
    now: context.now,
  });
  const viaLoopback: Fetch = (url, init) => fetch(url.replace(/^https?:\/\//, `${provider.origin}/`), init);
  const get = (url: string, headers: Record<string, string> = {}) =>
    viaLoopback(url, { method: 'GET', headers, redirect: 'manual', signal: AbortSignal.timeout(5_000) });
  try {
    const asked = await authorizationRequest({ ...context, redirectUri });
    const location = (await get(asked.url)).headers.get('location');
    const callbackParams = new URL(location ?? redirectUri).searchParams;
    if (!report('authorization', callbackParams.has('code'), callbackParams.get('error'))) return false;
    const { state: expectedState, codeVerifier } = asked;
    const exchanged = await exchangeCode({
      ...context,
      fetch: viaLoopback,
      callbackParams,
      redirectUri,
      expectedState,
      codeVerifier,
    });
    if (!exchanged.ok) return report('code exchange', false, exchanged.fault.error);
    report('code exchange', true);
    const { accessToken, refreshToken: first } = exchanged.tokens;
    const credentials = { type: 'OAUTH2', access_token: accessToken, raw: {} } as const;
    const { headers, query } = placeCredentials({ definition, credentials, values: {} });
    const called = await get(withQuery(`${api}/any`, query), headers);
    const isAccepted = report('API call', called.status === 200);
    if (first === undefined) {
      console.log('The provider gives no refresh token.');
      return isAccepted;
    }
    const refreshed = await refreshToken({ ...context, fetch: viaLoopback, refreshToken: first });
    return report('refresh', refreshed.ok, refreshed.ok ? undefined : refreshed.fault.error) && isAccepted;
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

/** The recommended parts that a new definition lacks, with what each is for. */
const recommended = [
  '`level` and `source`: the page on which you found the facts, and the day',
  '`verification`: a harmless call that shows whether credentials work',
];
const recommendedForOAuth = [
  '`scopes`: their names and meaning, and the defaults',
  '`revocation`: the endpoint that ends a token',
  '`userinfo`: the endpoint that names the account',
  '`refresh`: whether refresh tokens rotate, and the life of tokens without `expires_in`',
  '`setup`: the steps to register a client',
];
