/**
 * Signed assertions (RFC 7519): exchanged for a token (RFC 7523 §2.1, or as bearer token), or sent to the API themselves.
 * The definition's `assertion` says which claims they have and how they are used. The key is the connection's own, or else
 * the integration's client secret.
 *
 * There is no refresh token: a token is renewed by another assertion. Does not own: reading and checking keys
 * (`signing-key.ts`), how a token request is sent and read (`oauth2-request.ts`).
 */
import { hash, randomUUID } from 'node:crypto';
import { SignJWT } from 'jose';
import * as oauth from 'oauth4webapi';
import { z } from 'zod';
import { type ProviderDefinition, templateFields } from '../providers/definition.ts';
import { fillText, isFillable, type TemplateValues } from '../providers/template.ts';
import type { RenewableMode } from './mode.ts';
import { clientText, expiryText, tokenText, withoutRefreshToken } from './oauth2-credentials.ts';
import {
  address,
  clientOf,
  type Network,
  type OAuthContext,
  serverOf,
  type TokenOutcome,
  type Tokens,
  tokenOutcome,
  tokenParams,
  tokenSection,
} from './oauth2-request.ts';
import { decryptedKey, fingerprintOf, readSigningKey, type SigningKey } from './signing-key.ts';
import type { TokenFault } from './token-fault.ts';
import type { JsonObject } from './token-response.ts';

/** A key with what belongs to it. */
type KeyParts = {
  readonly privateKey: string;
  readonly privateKeyId?: string;
  readonly issuerId?: string;
  /** For a provider that also authenticates the client of a grant, from its key file. */
  readonly clientSecret?: string;
};

/** As sealed. `expires_at` is ISO 8601 in UTC. */
export type JwtCredentials = Partial<KeyParts> & {
  readonly type: 'JWT';
  /** Absent before the first token is fetched. */
  readonly token?: string;
  readonly expires_at?: string;
  /** The provider's last response, unchanged. */
  readonly raw: JsonObject;
};

/** Longer than the key file of any provider with a key of 4,096 bits. */
const maxKeyLength = 16_384;

/** The key files of Google (https://cloud.google.com/iam/docs/keys-create-delete) and Box. */
const keyFile = z.union([
  z
    .object({ private_key: z.string(), private_key_id: clientText.optional(), client_email: clientText })
    .transform((file) => ({
      privateKey: file.private_key,
      ...(file.private_key_id !== undefined && { privateKeyId: file.private_key_id }),
      issuerId: file.client_email,
    })),
  z
    .object({
      boxAppSettings: z.object({
        clientID: clientText,
        clientSecret: clientText,
        appAuth: z.object({
          publicKeyID: clientText,
          privateKey: z.string(),
          passphrase: z.string().optional(),
        }),
      }),
    })
    .transform(({ boxAppSettings: { clientID, clientSecret, appAuth } }) => ({
      privateKey:
        appAuth.passphrase === undefined
          ? appAuth.privateKey
          : decryptedKey({ text: appAuth.privateKey, passphrase: appAuth.passphrase }),
      privateKeyId: appAuth.publicKeyID,
      issuerId: clientID,
      clientSecret,
    })),
]);

/** A key as it is pasted: the key alone, or a key file in JSON. Undefined for JSON that is no key file. */
function keyPartsOf(text: string): KeyParts | undefined {
  if (!text.startsWith('{')) return { privateKey: text };
  try {
    return keyFile.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

const importSchema = z
  .strictObject({
    type: z.literal('JWT'),
    privateKey: z.string().trim().min(1).max(maxKeyLength).optional(),
    privateKeyId: clientText.or(z.literal('')).optional(),
    issuerId: clientText.or(z.literal('')).optional(),
    clientSecret: clientText.optional(),
    token: tokenText.optional(),
    expires_at: expiryText.optional(),
    raw: z.record(z.string(), z.json()).optional(),
  })
  .transform(
    ({ type, privateKey, privateKeyId, issuerId, clientSecret, ...given }, context): JwtCredentials => {
      const { token, expires_at } = given;
      const parts = privateKey === undefined ? {} : keyPartsOf(privateKey);
      if (parts === undefined)
        context.addIssue({ code: 'custom', message: 'is JSON, but not a key file', path: ['privateKey'] });
      return {
        type,
        ...parts,
        ...(privateKeyId && { privateKeyId }),
        ...(issuerId && { issuerId }),
        ...(clientSecret !== undefined && { clientSecret }),
        ...(token !== undefined && { token }),
        ...(expires_at !== undefined && { expires_at }),
        raw: (given.raw as JsonObject | undefined) ?? {},
      };
    },
  );

const toWire = ({ type, token, expires_at, issuerId, privateKeyId, raw }: JwtCredentials) => ({
  type,
  ...(token !== undefined && { token }),
  ...(expires_at !== undefined && { expires_at }),
  ...(issuerId !== undefined && { issuerId }),
  ...(privateKeyId !== undefined && { privateKeyId }),
  raw: withoutRefreshToken(raw),
});

const formNames: readonly string[] = ['privateKey', 'privateKeyId', 'issuerId'];

/** A key that signs assertions, sent as bearer token (RFC 6750 §2.1). */
export const jwt: RenewableMode<JwtCredentials> = {
  name: 'JWT',
  client: 'optional',
  ownCredentialsOnly: false,
  clientOpensAccounts: true,
  form: {
    path: '/auth/jwt',
    operationId: 'connectByPrivateKey',
    summary: 'Connect with a private key',
    example: { privateKey: 'the text of the file with the key' },
    fields: {
      issuerId: { secret: false, ifDeclared: true },
      privateKeyId: { secret: false, ifDeclared: true },
      privateKey: { secret: true, required: true, multiline: true },
    },
  },
  importSchema,
  credentialFaults: (credentials, { assertion }) => {
    if (assertion === undefined || credentials.privateKey === undefined) return [];
    const read = readSigningKey(credentials.privateKey, assertion);
    return 'fault' in read ? [{ path: ['privateKey'], message: read.fault }] : [];
  },
  clientSecretFault: (clientSecret, { assertion }) => {
    const parts = keyPartsOf(clientSecret);
    if (parts === undefined) return 'is JSON, but not a key file';
    const read = assertion && readSigningKey(parts.privateKey, assertion);
    return read && 'fault' in read ? read.fault : undefined;
  },
  placeholders: ['accessToken', 'issuerId', 'privateKeyId', 'fingerprint', 'scope', 'jti'],
  templateValues: ({ token = '', issuerId = '', privateKeyId = '' }) => ({
    accessToken: token,
    issuerId,
    privateKeyId,
  }),
  // biome-ignore lint/suspicious/noTemplateCurlyInString: a template of the service
  placement: [{ in: 'header', name: 'Authorization', value: 'Bearer ${credentials.accessToken}' }],
  definitionFaults: ({ assertion, token, authorization, revocation, sandbox, credentials }) => {
    const faults: [string[], string][] = [];
    if (assertion === undefined) faults.push([['assertion'], 'a JWT provider needs it']);
    if (assertion !== undefined && (assertion.use === 'direct') === (token !== undefined))
      faults.push([['token'], 'a JWT provider has it unless the assertion is used as "direct"']);
    if (authorization !== undefined)
      faults.push([['authorization'], 'a JWT provider has no authorization page']);
    if (revocation !== undefined)
      faults.push([['revocation'], 'a JWT provider has none: the request would contain the private key']);
    if (sandbox !== undefined) faults.push([['sandbox'], 'the sandbox takes no assertions']);
    for (const name of Object.keys(credentials)) {
      if (formNames.includes(name)) continue;
      faults.push([['credentials', name], `a JWT provider has only ${formNames.join(', ')}`]);
    }
    return faults;
  },
  toWire,
  renewal: {
    grantType: 'client_credentials',
    accessTokenOf: ({ token }) => token,
    secretOf: ({ privateKeyId = '' }) => privateKeyId,
    ownClientOf: ({ privateKey, privateKeyId, issuerId }) =>
      privateKey === undefined
        ? undefined
        : { clientId: issuerId ?? privateKeyId ?? nameOfKey(privateKey), clientSecret: privateKey },
    request: requestToken,
    after: (tokens, { previous }) => {
      const { token: _token, expires_at: _end, ...key } = previous;
      return {
        ...key,
        token: tokens.accessToken,
        ...(tokens.expiresAt !== undefined && { expires_at: tokens.expiresAt.toISOString() }),
        raw: tokens.raw,
      };
    },
    // The key renews a token, like a refresh token in other modes.
    toWireWithSecret: ({ privateKey, clientSecret, ...others }) => ({
      ...toWire(others),
      ...(privateKey !== undefined && { privateKey }),
      ...(clientSecret !== undefined && { clientSecret }),
    }),
  },
};

/** Tells keys without an ID apart, without telling anything about them. */
function nameOfKey(privateKey: string): string {
  return `key-${hash('sha256', privateKey).slice(0, 16)}`;
}

type Request = OAuthContext & Network & { credentials: JwtCredentials };
type Signer = { key: SigningKey; parts: Partial<KeyParts> };

/** Requests a token by an assertion, or signs one that is the token itself. Throws as `Renewal.request`. */
async function requestToken(context: Request): Promise<TokenOutcome> {
  const { credentials, client, definition } = context;
  const assertion = assertionOf(definition);
  const isOwnKey = credentials.privateKey !== undefined;
  const parts = isOwnKey ? credentials : { issuerId: client.clientId, ...keyPartsOf(client.clientSecret) };
  const key = readSigningKey(parts.privateKey ?? '', assertion);
  const unusable: TokenFault = { kind: 'client_misconfigured', error: 'invalid_key', isOfClient: true };
  if ('fault' in key) return { ok: false, fault: judged(unusable, { isOwnKey }) };
  const values = { ...context.values, credentials: assertionValues(context, { key, parts }) };
  const signed = await sign({ ...context, values }, key);
  if (signed === undefined) return { ok: false, fault: judged(unusable, { isOwnKey }) };
  if (assertion.use === 'direct') return { ok: true, tokens: signed };
  const outcome = await exchange({ ...context, values }, { signed: signed.accessToken, parts });
  if (!outcome.ok) return { ok: false, fault: judged(outcome.fault, { isOwnKey }) };
  const { refreshToken: _unasked, refreshExpiresAt: _its, ...tokens } = outcome.tokens;
  return { ok: true, tokens };
}

function assertionOf({ name, assertion }: ProviderDefinition) {
  if (assertion === undefined) throw new TypeError(`the provider "${name}" has no assertion`);
  return assertion;
}

/** The values of `${credentials.x}` in an assertion; empty ones are left out. */
function assertionValues({ client, definition }: Request, { key, parts }: Signer): Record<string, string> {
  const privateKeyId = parts.privateKeyId ?? key.keyId ?? '';
  return {
    issuerId: parts.issuerId ?? '',
    privateKeyId,
    fingerprint: fingerprintOf(key) ?? '',
    scope: client.scopes.join(definition.scopes.separator),
    jti: randomUUID(),
  };
}

type Filled = Request & { values: TemplateValues };

/** The assertion, as the tokens that it is where the API takes it; undefined if the key cannot sign. */
async function sign(context: Filled, { key }: SigningKey): Promise<Tokens | undefined> {
  const { algorithm, header, claims, life_s, issued_s_ago } = assertionOf(context.definition);
  const issuedAt = Math.floor((context.now ?? new Date()).getTime() / 1000) - issued_s_ago;
  const assertion = new SignJWT(filled(claims, context))
    .setProtectedHeader({ typ: 'JWT', ...filled(header, context), alg: algorithm })
    .setIssuedAt(issuedAt)
    .setExpirationTime(issuedAt + life_s);
  // The numbers of a key may contradict each other.
  const accessToken = await assertion.sign(key).catch(() => undefined);
  if (accessToken === undefined) return undefined;
  const expiresAt = new Date((issuedAt + life_s) * 1000);
  return { accessToken, tokenType: 'Bearer', expiresAt, raw: { expires_in: life_s - issued_s_ago } };
}

function filled(templates: Readonly<Record<string, string>>, { definition, values }: Filled) {
  const given = { values, fields: templateFields(definition) };
  return Object.fromEntries(
    Object.entries(templates)
      .filter(([, template]) => isFillable(template, values))
      .map(([name, template]) => [name, fillText(template, given)]),
  );
}

const grantType = 'urn:ietf:params:oauth:grant-type:jwt-bearer';

function exchange(
  context: Filled,
  { signed, parts }: { signed: string; parts: Partial<KeyParts> },
): Promise<TokenOutcome> {
  const { definition } = context;
  const token = tokenSection(definition);
  const server = serverOf(context, address(context, token.url));
  const client = clientOf({ ...context, client: { ...context.client, clientId: parts.issuerId ?? '' } });
  const isGrant = assertionOf(definition).use === 'grant';
  const request = (options: oauth.TokenEndpointRequestOptions) =>
    oauth.genericTokenEndpointRequest(
      server,
      client,
      // The assertion authenticates the client (RFC 7523 §3.1), unless the provider gave it a secret, too.
      parts.clientSecret === undefined ? () => {} : oauth.ClientSecretPost(parts.clientSecret),
      grantType,
      { ...tokenParams(context, token.params), ...(isGrant && { assertion: signed }) },
      options,
    );
  const { scopes } = context.client;
  return tokenOutcome(isGrant ? context : { ...context, fetch: bearerFetch(context, signed) }, {
    endpoint: server.token_endpoint,
    request,
    judge: (response) => oauth.processGenericTokenEndpointResponse(server, client, response),
    keepIdToken: false,
    isRenewable: true,
    defaultScopes: scopes.length > 0 ? scopes : undefined,
  });
}

/** Sends the assertion as the bearer token of a request with the API's headers, and with JSON instead of a form. */
function bearerFetch(context: Filled, signed: string): Network['fetch'] {
  const { definition, values } = context;
  const fields = Object.entries(assertionOf(definition).body)
    .filter(([, { value }]) => isFillable(value, values))
    .map(([name, { value, as }]): [string, unknown] => {
      const items = filled({ value }, context)
        .value!.split(',')
        .map((item) => item.trim());
      const pairs = () => Object.fromEntries(items.map((item) => item.split(':', 2)));
      return [name, as === 'list' ? items : pairs()];
    });
  const headers = {
    accept: 'application/json',
    ...filled(definition.api.headers, context),
    authorization: `Bearer ${signed}`,
    'content-type': 'application/json',
  };
  const body = JSON.stringify(Object.fromEntries(fields));
  return (url, init) => context.fetch(url, { ...init, headers, body });
}

/** Codes for a scope or an address, which the integration chooses. */
const ofSettings: ReadonlySet<string | undefined> = new Set(['invalid_scope', 'unsupported_grant_type']);
/** Our codes for an unreadable response, which may come from a gateway. */
const unread: ReadonlySet<string | undefined> = new Set(['not_json', 'too_large']);

/** Assigns a refusal of the assertion to the owner of its key: the connection, or the integration. */
function judged(fault: TokenFault, { isOwnKey }: { isOwnKey: boolean }): TokenFault {
  const { kind, error, httpStatus } = fault;
  if (kind === 'client_misconfigured' && ofSettings.has(error)) return { ...fault, isOfOneGrant: true };
  // RFC 9110 §15.5.2: whatever the code, the request has no other credentials than the assertion.
  const isRefusal =
    kind === 'client_misconfigured' || (kind === 'protocol' && httpStatus === 401 && !unread.has(error));
  if (!isRefusal) return fault;
  return isOwnKey
    ? { ...fault, kind: 'dead_grant' }
    : { ...fault, kind: 'client_misconfigured', isOfClient: true };
}
