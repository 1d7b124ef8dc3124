/**
 * A role at AWS: STS issues temporary keys for it (AssumeRole), which sign each request as a key of `AWS_SIGV4` does. The
 * request to STS is signed with the connection's own access key, or else with the integration's.
 * https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
 *
 * The role and its external ID are configuration. Only the application sets them if the integration's key is used: an end
 * user could name the role of another customer, which trusts the same key.
 */
import { AwsV4Signer } from 'aws4fetch';
import { z } from 'zod';
import { templateFields } from '../providers/definition.ts';
import { fillText, isFillable, TemplateError } from '../providers/template.ts';
import { awsKey, awsSigner } from './aws-sigv4.ts';
import type { RenewableMode } from './mode.ts';
import { expiryText } from './oauth2-credentials.ts';
import { address, type Network, type OAuthContext, type TokenOutcome } from './oauth2-request.ts';
import { faultOfAnswer, faultOfSilence, type TokenFault } from './token-fault.ts';
import { type JsonObject, readAnswer, secondsUntil, UnreadableAnswerError } from './token-response.ts';

type Key = { readonly access_key_id: string; readonly secret_access_key: string };

/** As sealed. `expires_at` is ISO 8601 in UTC. */
type AwsRoleCredentials = {
  readonly type: 'AWS_ROLE';
  /** The connection's own key: both fields or none. */
  readonly access_key_id?: string;
  readonly secret_access_key?: string;
  /** The temporary keys; absent before the first request. */
  readonly session?: Key & { readonly session_token: string };
  readonly expires_at?: string;
  readonly raw: JsonObject;
};

const issuedKey = z.object(awsKey);
const { session_token: sessionToken, ...keyFields } = awsKey;
const importSchema = z
  .strictObject({
    type: z.literal('AWS_ROLE'),
    access_key_id: keyFields.access_key_id.optional(),
    secret_access_key: keyFields.secret_access_key.optional(),
    session: z.strictObject({ ...keyFields, session_token: sessionToken }).optional(),
    expires_at: expiryText.optional(),
  })
  .superRefine(({ access_key_id: id, secret_access_key: secret, session, expires_at }, context) => {
    const report = (name: string, other: string) =>
      context.addIssue({ code: 'custom', path: [name], message: `is required with ${other}` });
    if (id === undefined && secret !== undefined) report('access_key_id', 'secret_access_key');
    if (id !== undefined && secret === undefined) report('secret_access_key', 'access_key_id');
    if (session !== undefined && expires_at === undefined) report('expires_at', 'session');
  })
  .transform(
    ({ type, access_key_id, secret_access_key, session, expires_at }): AwsRoleCredentials => ({
      type,
      ...(access_key_id !== undefined &&
        secret_access_key !== undefined && { access_key_id, secret_access_key }),
      ...(session !== undefined && { session, expires_at: expires_at! }),
      raw: {},
    }),
  );

const toWire = ({ type, session, expires_at }: AwsRoleCredentials) => ({
  type,
  ...session,
  ...(expires_at !== undefined && { expires_at }),
});

export const awsRole: RenewableMode<AwsRoleCredentials> = {
  name: 'AWS_ROLE',
  client: 'optional',
  ownCredentialsOnly: false,
  clientOpensAccounts: true,
  form: {
    path: '/auth/aws-role',
    operationId: 'connectByAwsRole',
    summary: 'Connect with an AWS role',
    example: { access_key_id: 'AKIAEXAMPLEEXAMPLE12', secret_access_key: 'secret-of-the-access-key' },
    fields: {
      access_key_id: { secret: false, required: true, title: 'Access key ID' },
      secret_access_key: { secret: true, required: true, title: 'Secret access key' },
    },
  },
  importSchema,
  placeholders: [],
  templateValues: () => ({}),
  placement: [],
  definitionFaults: ({ signature, placement }) => [
    ...(signature?.assume_role === undefined
      ? [[['signature', 'assume_role'], 'an AWS_ROLE provider needs it'] as [string[], string]]
      : []),
    ...(placement.length > 0
      ? [[['placement'], 'is not allowed: an AWS_ROLE provider signs each request'] as [string[], string]]
      : []),
  ],
  signer({ session }, context) {
    if (session === undefined) throw new TemplateError('the connection lacks a value for its credentials');
    return awsSigner(session, context);
  },
  toWire,
  renewal: {
    grantType: 'client_credentials',
    accessTokenOf: ({ session }) => session?.session_token,
    secretOf: ({ access_key_id }) => access_key_id ?? '',
    ownClientOf: ({ access_key_id, secret_access_key }) =>
      access_key_id === undefined || secret_access_key === undefined
        ? undefined
        : { clientId: access_key_id, clientSecret: secret_access_key },
    request: assumeRole,
    after: ({ accessToken, tokenSecret = '', expiresAt, raw }, { previous }) => ({
      ...previous,
      session: {
        access_key_id: String(raw.access_key_id),
        secret_access_key: tokenSecret,
        session_token: accessToken,
      },
      ...(expiresAt !== undefined && { expires_at: expiresAt.toISOString() }),
      raw,
    }),
    // The key renews the session, like a refresh token in other modes.
    toWireWithSecret: ({ access_key_id, secret_access_key, ...others }) => ({
      ...toWire(others),
      ...(access_key_id !== undefined && { own_key: { access_key_id, secret_access_key } }),
    }),
  },
};

type Context = OAuthContext & Network & { credentials: AwsRoleCredentials };

/** Throws TemplateError, and AppError when the address may not be reached. */
async function assumeRole(context: Context): Promise<TokenOutcome> {
  const { definition, client, fetch, signal, now = new Date() } = context;
  const { assume_role: rules, region = '' } = definition.signature ?? {};
  if (rules === undefined) throw new TypeError(`the provider "${definition.name}" has no role`);
  const values = context.values ?? {};
  const fill = (template: string) => fillText(template, { values, fields: templateFields(definition) });
  const { external_id: externalId } = rules;
  const body = new URLSearchParams({
    Action: 'AssumeRole',
    Version: '2011-06-15',
    RoleArn: fill(rules.role_arn),
    RoleSessionName: 'trellis',
    DurationSeconds: String(rules.life_s),
    ...(externalId !== undefined && isFillable(externalId, values) && { ExternalId: fill(externalId) }),
  }).toString();
  const url = address(context, rules.url);
  const signed = await new AwsV4Signer({
    method: 'POST',
    url,
    body,
    service: 'sts',
    region: fill(region),
    accessKeyId: client.clientId,
    secretAccessKey: client.clientSecret,
    datetime: now.toISOString().replace(/[:-]|\.\d{3}/g, ''),
    headers: {
      'content-type': 'application/x-www-form-urlencoded; charset=utf-8',
      accept: 'application/xml',
    },
  }).sign();
  try {
    const { status, text, retryAfterMs } = await readAnswer(
      url,
      { method: 'POST', headers: Object.fromEntries(signed.headers), body },
      { fetch, signal, now, timeoutMs: context.timeoutMs ?? rules.timeout_ms },
    );
    const silent = (reason: UnreadableAnswerError['reason']) =>
      new UnreadableAnswerError(reason, { httpStatus: status });
    if (status >= 300 && status < 400) throw silent('redirect');
    if (status >= 500) throw silent('server_error');
    const error = tag(text, 'Code');
    if (status >= 400 && error === undefined) throw silent('html');
    if (error !== undefined) {
      const sent = [client.clientSecret];
      const seen = { httpStatus: status, raw: {}, retryAfterMs, sent, error };
      return { ok: false, fault: judged(faultOfAnswer(codes, seen), context) };
    }
    // Other characters would fail in the headers of each later request.
    const read = issuedKey.safeParse({
      access_key_id: tag(text, 'AccessKeyId'),
      secret_access_key: tag(text, 'SecretAccessKey'),
      session_token: tag(text, 'SessionToken'),
    });
    const lifeS = secondsUntil(tag(text, 'Expiration'), now);
    if (!read.success || !lifeS)
      return { ok: false, fault: { kind: 'protocol', error: 'invalid_answer', httpStatus: status } };
    const { access_key_id: id, secret_access_key: secret, session_token: token } = read.data;
    return {
      ok: true,
      tokens: {
        accessToken: token,
        tokenSecret: secret,
        tokenType: 'Bearer',
        expiresAt: new Date(now.getTime() + lifeS * 1000),
        raw: { access_key_id: id, expires_in: lifeS },
      },
    };
  } catch (error) {
    if (error instanceof UnreadableAnswerError) return { ok: false, fault: faultOfSilence(error) };
    throw error;
  }
}

/** The text of an element without markup inside. */
function tag(xml: string, name: string): string | undefined {
  const text = new RegExp(`<${name}>\\s*([^<>&\\s]+)\\s*</${name}>`).exec(xml)?.[1];
  return text === undefined || text.length > 65_536 ? undefined : text;
}

/** https://docs.aws.amazon.com/STS/latest/APIReference/CommonErrors.html and API_AssumeRole.html. */
const codes = {
  AccessDenied: 'dead_grant',
  ValidationError: 'dead_grant',
  ExpiredTokenException: 'client_refused',
  InvalidClientTokenId: 'client_refused',
  SignatureDoesNotMatch: 'client_refused',
  OptInRequired: 'client_misconfigured',
  RegionDisabledException: 'client_misconfigured',
  RequestExpired: 'protocol',
  Throttling: 'transient',
  ThrottlingException: 'transient',
} as const;

/** Assigns a refusal to its owner: a role that does not trust the integration's key is a fault of this connection alone. */
function judged(fault: TokenFault, { credentials }: Context): TokenFault {
  const isOwnKey = credentials.access_key_id !== undefined;
  if (isOwnKey && fault.isOfClient) return { ...fault, kind: 'dead_grant' };
  if (!isOwnKey && fault.kind === 'dead_grant')
    return { ...fault, kind: 'client_misconfigured', isOfOneGrant: true };
  return fault;
}
