/**
 * The schema of a provider definition: what one YAML file of `providers/` may contain. A definition is data, never code,
 * and keeps the snake_case of its file, which `GET /providers` also shows.
 *
 * `source.ts` reads the files, `catalog.ts` collects all faults at start, `template.ts` has the rules for placeholders.
 */
import { z } from 'zod';
import { assertionSchema, assertionTexts } from './assertion.ts';
import { addressFaults, placementFaults, type TemplateFields, textFaults } from './template.ts';

/** A regular expression, read with the flag `u`. */
const pattern = z.string().refine(isPattern, 'is no valid regular expression');
const headerName = z.string().regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/, 'is no header name');
const seconds = z.int().positive();

/** The meaning of an API error's reason beyond its status; see `connections/health/api-faults.ts`. */
const apiReasons = ['scope_missing', 'api_disabled', 'rate_limited'] as const;

/** The quotas of the provider: how many calls it accepts, and for which owner it counts them. */
const quotaSchema = z.strictObject({
  /** The API that counts: definitions with the same service share its quotas. */
  service: z.string().min(1),
  /** Its first group is the owner of the quota in a client ID; without it, each client is its own owner. */
  owner_pattern: pattern.optional(),
  /** Which calls are reads, as `METHOD /path`; all others are writes. */
  reads: pattern.default('^(GET|HEAD|OPTIONS) '),
  limits: z
    .array(
      z.strictObject({
        name: z.string().regex(/^[A-Za-z0-9._-]+$/),
        /** Counts all calls of the owner, or those of one account with this owner. */
        per: z.enum(['owner', 'account']),
        counts: z.enum(['read', 'write', 'all']),
        count: z.int().positive(),
        window_s: z.number().positive(),
        /** The number of simultaneous calls when many share the limit; further calls are spread evenly. */
        burst: z.int().positive().optional(),
      }),
    )
    .min(1),
});

const fieldPath = z.string().min(1);
const parameter = z.string().min(1);
const ofPages = {
  /**
   * The path of the items in a response, a dot for each step inside. Absent if the response is the list, or if it
   * differs by call.
   */
  response_path: fieldPath.optional(),
  /** The page size if a function does not set one. */
  limit: z.int().positive().optional(),
  limit_name_in_request: parameter.optional(),
  in_body: z.boolean().optional(),
};
/** The pagination of the API: the defaults for a function's `paginate`. */
const paginateSchema = z.discriminatedUnion('type', [
  z.strictObject({
    ...ofPages,
    type: z.literal('cursor'),
    cursor_path_in_response: fieldPath,
    cursor_name_in_request: parameter,
  }),
  z
    .strictObject({
      ...ofPages,
      type: z.literal('link'),
      link_rel_in_response_header: z.string().min(1).optional(),
      link_path_in_response_body: fieldPath.optional(),
    })
    .refine(
      (of) => (of.link_rel_in_response_header ?? of.link_path_in_response_body) !== undefined,
      'says neither which header nor which field holds the link',
    ),
  z.strictObject({
    ...ofPages,
    type: z.literal('offset'),
    offset_name_in_request: parameter,
    offset_start_value: z.int().min(0).optional(),
    offset_calculation_method: z.enum(['by-response-size', 'per-page']).optional(),
  }),
]);

/** The API that the proxy calls: its address, the headers of a call, the form of its responses. */
const apiSchema = z.strictObject({
  /**
   * `none`, read as null, if there is no HTTP API, as with a database: the proxy refuses calls, and the application connects on
   * its own with the credentials.
   */
  base_url: z.string().transform((address) => (address === 'none' ? null : address)),
  /** `cut`: a caller's path that begins with the path of `base_url` is sent with it once, not twice. */
  repeated_base_path: z.enum(['cut']).optional(),
  /**
   * Further addresses of the provider that a Base-Url-Override may name without a setting of the integration. Read as
   * a map to the address that is called: the same one, or that of the sandbox.
   */
  other_base_urls: z
    .array(z.url({ protocol: /^https$/ }))
    .default([])
    .transform((urls): Record<string, string> => Object.fromEntries(urls.map((url) => [url, url]))),
  /** Sent with each call; values may contain placeholders. */
  headers: z.record(headerName, z.string()).default({}),
  /** Headers of the caller that are forwarded, besides those that every provider gets. */
  pass_headers: z.array(headerName).default([]),
  /**
   * Headers and query parameters that compete with the connection's identity. The proxy removes them from each call.
   * Lower case.
   */
  forbid: z
    .strictObject({
      headers: z.array(headerName.toLowerCase()).default([]),
      query: z.array(z.string()).default([]),
    })
    .prefault({}),
  /**
   * Headers and query parameters that change what a call does, besides the usual ones. Refused if rules apply to the
   * caller.
   */
  overrides: z
    .strictObject({
      headers: z.array(headerName).default([]),
      query: z.array(z.string().min(1)).default([]),
    })
    .prefault({}),
  /** Path prefixes that are also served at our root, for clients that do not keep a path prefix. */
  root_aliases: z.array(z.string().regex(/^\/[A-Za-z0-9/._-]+$/)).default([]),
  /** The form of the API's errors, which our errors on the proxy follow. */
  error_format: z.enum(['google']).optional(),
  errors: z
    .strictObject({
      /** The meaning of an error, by its reason. */
      reasons: z.record(z.string(), z.enum(apiReasons)).default({}),
      /** A quota with a matching name is that of one account; any other is that of the whole client. */
      account_quota: pattern.optional(),
      /** Whether an HTML page with 403 or 429 is the provider's protection against robots. */
      guard_pages: z.boolean().default(false),
    })
    .prefault({}),
  /** `relay` returns a redirect to the caller; `same_origin` follows it within the API's origin. */
  redirects: z.enum(['relay', 'same_origin']).default('relay'),
  timeouts: z
    .strictObject({
      connect_ms: z.int().positive().default(10_000),
      headers_ms: z.int().positive().default(300_000),
      body_idle_ms: z.int().positive().default(300_000),
      /** The limit of the whole call, with attempts and waits; absent: no limit. */
      total_ms: z.int().positive().optional(),
    })
    .prefault({}),
  quota: quotaSchema.optional(),
  paginate: paginateSchema.optional(),
  /** The shortest waits before a retry if the provider does not return one. */
  retry_wait_ms: z.strictObject({ too_many: z.int().positive(), unavailable: z.int().positive() }).optional(),
});

/** The kinds of faults at the token endpoint; `auth-modes/token-fault.ts` describes them. */
const faultKinds = [
  'denied',
  'dead_grant',
  'session_policy',
  'blocked_by_admin',
  'client_misconfigured',
  'transient',
  'protocol',
] as const;

/** Parameters of a token request that definitions must not set (RFC 6749 §4.1.3, §4.4.2, §2.3.1, RFC 7636). */
const reservedTokenParams: ReadonlySet<string> = new Set([
  'client_id',
  'client_secret',
  'code',
  'code_verifier',
  'grant_type',
  'redirect_uri',
  'refresh_token',
]);

/** The token endpoint of a definition: its requests, and how its responses depart from RFC 6749 §5.1. */
const tokenSchema = z.strictObject({
  url: z.string(),
  /** Sent with each request for a first token, except those that have a placeholder without a value. */
  params: z
    .record(
      z.string().refine((name) => !reservedTokenParams.has(name), 'belongs to the protocol'),
      z.string(),
    )
    .default({}),
  /**
   * RFC 6749 §2.3.1, RFC 7523 §2.2 and RFC 8705 §2, as named by RFC 7591. The last two take a private key in PEM as the
   * client's secret, the last one with its certificate.
   */
  auth_method: z
    .enum(['client_secret_post', 'client_secret_basic', 'none', 'private_key_jwt', 'tls_client_auth'])
    .default('client_secret_post'),
  /** Of `private_key_jwt`. */
  client_assertion: z
    .strictObject({
      algorithm: z.enum(['RS256', 'PS256', 'ES256', 'ES384']).default('RS256'),
      /** The `kid` of its header; not sent if a placeholder has no value. */
      key_id: z.string().min(1).optional(),
      /** If it differs from the address of the token endpoint. */
      audience: z.string().min(1).optional(),
    })
    .optional(),
  /** The parameter with the client ID, also of an authorization request, if it is not `client_id`. */
  client_id_param: z
    .string()
    .regex(/^[a-z_]+$/)
    .default('client_id'),
  /** The encoding of a request; `form` if absent (RFC 6749 §4.1.3). */
  body: z.enum(['form', 'json']).optional(),
  timeout_ms: z.int().positive().max(120_000).default(30_000),
  answer: z
    .strictObject({
      /** The encoding of a successful response, if it departs from RFC 6749 §5.1. */
      format: z.enum(['json', 'form']).default('json'),
      /** The path of the token object, for example `authed_user`. A response without it is the token object itself. */
      token_path: z.string().optional(),
      /** The field with the access token, if it is not `access_token`. */
      access_token: z.string().optional(),
      /** For a provider that omits `token_type`. */
      default_token_type: z.string().optional(),
      /** The provider's own token types that are sent as Bearer, too. */
      bearer_token_types: z.array(z.string()).default([]),
      /** The field of a response with status 200 that contains an error, if there can be one. */
      error_in_success: z.string().optional(),
      /** The field with the error code, if it is not `error`. */
      error: z.string().optional(),
      /** The field with the lifetime of the access token in seconds, if it is not `expires_in`. */
      expires_in: z.string().optional(),
      /**
       * The field with the expiry of the access token, an ISO 8601 date or Unix seconds, if there is no `expires_in`.
       */
      expires_at: z.string().optional(),
      /** The field with the lifetime of the refresh token in seconds, if it is not `refresh_token_expires_in`. */
      refresh_expires_in: z.string().optional(),
      /** The field with the granted scopes, if it is not `scope`. */
      scope: z.string().optional(),
    })
    .prefault({}),
  /**
   * The meaning of `error`, or of `error/error_subtype`, beyond the codes of RFC 6749 §5.2. `client_refused` is that
   * of `invalid_client`: the client itself is not known, or its secret is wrong.
   */
  errors: z.record(z.string(), z.enum([...faultKinds, 'client_refused'])).default({}),
});

/** What a provider of `OAUTH1` has besides `authorization` and `token`; `auth-modes/oauth1.ts` sends the requests. */
const oauth1Schema = z.strictObject({
  /** Issues temporary credentials (RFC 5849 §2.1). */
  request_url: z.string(),
  /** The methods of the requests to `request_url` and to `token.url`, if the provider departs from the RFC. */
  request_method: z.enum(['GET', 'POST']).default('POST'),
  token_method: z.enum(['GET', 'POST']).default('POST'),
  /** RFC 5849 §3.4; HMAC-SHA256 is that of RFC 5849 with another digest. */
  signature_method: z.enum(['HMAC-SHA1', 'HMAC-SHA256', 'PLAINTEXT']).default('HMAC-SHA1'),
  /**
   * Where `state` is sent: in the query of the callback address, which the provider keeps (RFC 5849 §2.2), or in that of
   * the authorization page, which returns it.
   */
  state_in: z.enum(['callback', 'authorization']).default('callback'),
});

/** A body with placeholders in its texts. A member whose placeholders have no value is not sent. */
const jsonTemplate = z.union([z.record(z.string(), z.json()), z.array(z.json())]);
const loginRequest = {
  method: z.enum(['GET', 'POST', 'PUT']).default('POST'),
  url: z.string(),
  /** Sent unless they have a placeholder without a value. */
  headers: z.record(headerName, z.string()).default({}),
  /** User name and password as `Authorization: Basic` (RFC 7617). */
  basic: z.strictObject({ username: z.string(), password: z.string() }).optional(),
  /** The body: fields of a form, or JSON. */
  form: z.record(z.string(), z.string()).optional(),
  json: jsonTemplate.optional(),
};
const loginRequestSchema = z.strictObject(loginRequest);
export type LoginRequest = z.output<typeof loginRequestSchema>;

/** The request of `TWO_STEP` for a token, with the credentials of the connection; `auth-modes/two-step.ts` sends it. */
const loginSchema = z.strictObject({
  ...loginRequest,
  timeout_ms: z.int().positive().max(120_000).default(30_000),
  /** Paths in the response, a dot for each step inside; a number is an index of a list: `errors.0.type`. */
  answer: z
    .strictObject({
      /** Absent if the whole response is the token, as a JSON text. */
      token: fieldPath.optional(),
      /** The lifetime. Without it and `expires_at`, it is `refresh.default_expires_in_s`. */
      expires_in: fieldPath.optional(),
      expires_in_unit: z.enum(['s', 'ms']).default('s'),
      /** The expiry, an ISO 8601 date or Unix seconds. */
      expires_at: fieldPath.optional(),
      /** The secret that `renewal` sends. */
      refresh_token: fieldPath.optional(),
      /** The error code. A response that has one is an error, whatever its status. */
      error: fieldPath.optional(),
    })
    .prefault({}),
  /** Statuses that refuse the credentials. Many providers lock an account after repeated sign-ins that fail. */
  refused: z.array(z.int().min(400).max(499)).default([400, 401, 403]),
  /** The meaning of error codes, which decide before the status. */
  errors: z
    .record(z.string(), z.enum(['dead_grant', 'session_policy', 'blocked_by_admin', 'transient', 'protocol']))
    .default({}),
  /** The request that renews the token with `${credentials.refreshToken}`. */
  renewal: loginRequestSchema.optional(),
});

/** The path of a field of the body, a dot for each step inside: `event.type`. */
const fieldName = z.string().regex(/^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$/, 'is no path of a field');
/** The secret of the integration that authenticates the sender. */
const senderKey = z.enum(['webhook_secret', 'client_secret']);

/** A place in a webhook: a header, a query parameter of its address, or a field of its body. */
const place = z.union([
  z.strictObject({ header: headerName }),
  z.strictObject({ query: z.string().min(1) }),
  /** With `base64_json`, the field holds JSON in base64, and this is the path of the field in it. */
  z.strictObject({ body: fieldName, base64_json: fieldName.optional() }),
]);
/** One item or a list of them. */
const listOf = <T extends z.ZodType>(item: T) =>
  z.union([item, z.array(item).min(1)]).transform((given): z.output<T>[] => [given].flat(1) as z.output<T>[]);

/** The placeholders of a signed text that stand for the body. */
const bodyIn = /\{(body|form|crc32)\}/g;
/** Where a signature is and what it covers. */
const signature = {
  key: senderKey,
  header: headerName,
  encoding: z.enum(['hex', 'base64']).default('hex'),
  /** The text before the signature. */
  prefix: z.string().default(''),
  /** The names of the parts, if the header is a list such as `t=1,v1=ab`. */
  parts: z.strictObject({ timestamp: z.string().optional(), signature: z.string() }).optional(),
  /** The header with the time of sending. */
  timestamp_header: headerName.optional(),
  /** The form of a time of sending outside the body: Unix time, or RFC 3339. */
  timestamp_format: z.enum(['seconds', 'milliseconds', 'rfc3339']).default('seconds'),
  /** The field of the body with the time of sending in Unix milliseconds. */
  timestamp_body: fieldName.optional(),
  /**
   * The signed text: `{timestamp}` if there is one, `{url}`, `{header.Name}`, and one of `{body}`; `{form}`, the names and
   * values of a form sorted by name, where any other body has its SHA-256 in the query parameter `bodySHA256`; and
   * `{crc32}`, the checksum of the body as a decimal number.
   */
  signed: z
    .string()
    .refine((text) => text.match(bodyIn)?.length === 1, 'holds {body}, {form} or {crc32} once')
    .default('{body}'),
};
type Timed = {
  parts?: { timestamp?: string | undefined } | undefined;
  timestamp_header?: string | undefined;
  timestamp_body?: string | undefined;
  signed: string;
};
const timesOf = ({ parts, timestamp_header, timestamp_body }: Timed) =>
  [parts?.timestamp, timestamp_header, timestamp_body].filter((from) => from !== undefined);
const signsItsTime = ({ timestamp_body, ...proof }: Timed) =>
  timesOf(proof).length > 0 === proof.signed.includes('{timestamp}');
const timeFault = { path: ['signed'], message: 'a timestamp is read and signed, or neither' };
const hasOneTime = (proof: Timed) => timesOf(proof).length <= 1;
const placesFault = { path: ['timestamp_body'], message: 'the time of sending is read from one place' };

const proof = z.discriminatedUnion('scheme', [
  /** A message authentication code (RFC 2104) over the body. */
  z
    .strictObject({
      scheme: z.literal('hmac'),
      ...signature,
      digest: z.enum(['sha1', 'sha256', 'sha512']).default('sha256'),
      /** The encoding of the key in the secret. */
      key_encoding: z.enum(['utf8', 'hex', 'base64']).default('utf8'),
      /** `unset`: an integration without a secret accepts the webhooks of every sender. */
      required: z.enum(['always', 'unset']).default('always'),
    })
    .refine(signsItsTime, timeFault)
    .refine(hasOneTime, placesFault),
  /** A signature by the provider's private key. The secret is the public key: hex for `ed25519`, SPKI in base64 for `ecdsa`. */
  z
    .strictObject({ scheme: z.literal('public_key'), ...signature, algorithm: z.enum(['ed25519', 'ecdsa']) })
    .refine(signsItsTime, timeFault)
    .refine(hasOneTime, placesFault),
  /**
   * An RSA signature with SHA-256 under the key of an X.509 certificate, whose address is in a header of the webhook. Only
   * an address that begins with one of `addresses` is read. The secret is `{secret}` in the signed text.
   */
  z
    .strictObject({
      scheme: z.literal('certificate'),
      ...signature,
      certificate: z.strictObject({
        header: headerName,
        addresses: z.array(z.url({ protocol: /^https$/ }).endsWith('/')).min(1),
      }),
    })
    .refine(signsItsTime, timeFault)
    .refine(hasOneTime, placesFault)
    .refine(({ signed }) => signed.includes('{secret}'), { path: ['signed'], message: 'holds {secret}' }),
  /**
   * A JSON Web Token of the issuer in a header, signed with RS256 (OpenID Connect). Its audience is the webhook's address,
   * with or without the query, and its verified e-mail address is the secret. It does not cover the body.
   */
  z.strictObject({
    scheme: z.literal('id_token'),
    key: senderKey,
    header: headerName,
    prefix: z.string().default(''),
    issuers: z.array(z.string()).min(1),
    jwks_url: z.url({ protocol: /^https$/ }),
  }),
  /** https://www.standardwebhooks.com; `headers` is the text before `-id`, `-timestamp` and `-signature`. */
  z.strictObject({
    scheme: z.literal('standard'),
    key: senderKey,
    headers: z.enum(['webhook', 'svix']).default('webhook'),
  }),
  /** The secret itself; with `basic`, the user name and the password of RFC 7617, divided by a colon. */
  z
    .strictObject({
      scheme: z.literal('token'),
      key: senderKey,
      header: headerName.optional(),
      query: z.string().min(1).optional(),
      body: fieldName.optional(),
      basic: z.boolean().default(false),
    })
    .refine(({ header, query, body }) => [header, query, body].filter(Boolean).length === 1, {
      path: ['header'],
      message: 'the secret is read from one place: a header, a query parameter or a field of the body',
    }),
  /** A JSON Web Token signed with HS256 (RFC 7519). `body_claim` has the hexadecimal SHA-256 of the body. */
  z.strictObject({
    scheme: z.literal('jwt'),
    key: senderKey,
    header: headerName,
    prefix: z.string().default(''),
    body_claim: z.string().optional(),
  }),
]);

/** The answer to a request that only tests the address. `{value}` is what `from` has. */
const challengeAnswer = z.union([
  z.strictObject({ text: z.literal('{value}') }),
  /** The fields of a JSON object; `{hmac}` is the value's HMAC-SHA256 in hex, under the secret of the proof. */
  z.strictObject({ json: z.record(z.string(), z.enum(['{value}', '{hmac}'])) }),
  z.strictObject({ header: headerName }),
  /** `answer_status` without a body. */
  z.strictObject({ empty: z.literal(true) }),
]);
const challenge = z
  .strictObject({
    method: z.enum(['GET', 'POST']).default('POST'),
    /** A request with a value there is a test; without `from`, each request of this method. */
    from: place.optional(),
    /** Only this value is a test. */
    equals: z.string().optional(),
    /** Whether the test is proved like a webhook. Any sender can have an unproved one answered. */
    proved: z.boolean(),
    answer: challengeAnswer,
  })
  .refine(({ method, from }) => method === 'GET' || from !== undefined, {
    path: ['from'],
    message: 'is required to distinguish a test from a webhook',
  })
  .refine(({ method, proved }) => !(method === 'GET' && proved), {
    path: ['proved'],
    message: 'a GET has no proof',
  })
  // The signature of any text that a sender chooses would let the sender forge webhooks.
  .refine(({ proved, answer }) => proved || !JSON.stringify(answer).includes('{hmac}'), {
    path: ['answer'],
    message: '`{hmac}` requires a proof',
  });

/** The webhooks that a provider sends to an integration unrequested, and how they are verified. */
export const webhookSchema = z.strictObject({
  proof,
  /** The type, to which functions subscribe. Of several places, the first with a value. */
  type: listOf(place).optional(),
  /** The connections: by ID, by the ID or the e-mail address of the account, or by a tag from the application. */
  connection: listOf(
    z.union([
      z.strictObject({ by: z.enum(['connection_id', 'account', 'email']), from: place }),
      z.strictObject({ by: z.literal('tag'), tag: z.string(), from: place }),
    ]),
  ).optional(),
  /** The field of a form that holds the whole payload as JSON, if the form has it. */
  form_json: z.string().min(1).optional(),
  /** Values that mean that the provider has ended or restored access: the credentials are renewed at once. */
  recheck: z
    .strictObject({
      /** Only in webhooks of this type. */
      type: z.string().optional(),
      from: place,
      values: z.array(z.string()).min(1),
    })
    .optional(),
  /** A request that only tests the address. */
  challenge: challenge.optional(),
  /** The status of an accepted webhook; 204 has no body. */
  answer_status: z.union([z.literal(200), z.literal(204)]).default(200),
  /** `none`: a response with status 200 has no body either. */
  answer_body: z.enum(['json', 'none']).default('json'),
});

const channelPath = z.string().startsWith('/', 'is no path');
const channelMethod = z.enum(['GET', 'POST', 'PUT', 'PATCH', 'DELETE']);
const channelBody = z.record(z.string(), z.json());
const channelValues = ['target', 'address', 'id', 'token', 'resource', 'expires_at', 'expires_ms'];

/**
 * Push channels: for a while, a provider reports changes to an address that it received. Paths and bodies have the
 * placeholders `{target}`, `{address}`, `{id}` (of the channel), `{token}` (random), `{expires_at}` (RFC 3339),
 * `{expires_ms}` (since 1970) and, after the creation, `{resource}`, the provider's ID; and those of addresses, such as
 * `${integrationConfig.topic}`. If one of these has no value, no channel is requested.
 */
const channelFields = z.strictObject({
  base_url: z.string(),
  /** A grant needs one of these scopes; empty: none is needed. */
  scopes: z.array(z.string()).default([]),
  /** Fields of a connection's metadata with the resources to watch: an ID or a list of IDs. */
  metadata: z.array(z.string()).default([]),
  /** The method of a request for a channel. */
  method: z.enum(['POST', 'PUT']).default('POST'),
  /** The channel of one resource, with its ID as `{target}`, and its longest lifetime. */
  target: z
    .strictObject({
      path: channelPath,
      life_s: seconds,
      /** The IDs that are requested. */
      pattern: pattern.default('[A-Za-z0-9_-]{1,200}'),
    })
    .optional(),
  /** The channel of the whole account, if no resource is named. `lookup` is a GET for further placeholders: name and field. */
  account: z
    .strictObject({
      path: channelPath,
      life_s: seconds,
      lookup: z.strictObject({ path: channelPath, fields: z.record(z.string(), fieldPath) }).optional(),
    })
    .optional(),
  /** The body of a request for a channel. */
  body: channelBody,
  /** Members of the body that replace others for targets that match. */
  body_for: z.array(z.strictObject({ target: pattern, body: channelBody })).default([]),
  /** The secret that verifies messages, if neither `response.secret` nor `handshake` has it. */
  secret: z.string().includes('{token}').default('{token}'),
  /** Whether messages may also be signed with the integration's webhook secret. */
  accepts_webhook_secret: z.boolean().default(false),
  /**
   * The fields of its response. Without `resource`, the provider's ID is that of the channel; with `resource_pattern`, it
   * is the part of the field that matches. Without `expires_at`, the channel lives for `life_s`. `secret` is the key of its
   * messages, if the provider makes it.
   */
  response: z
    .strictObject({
      resource: fieldPath.optional(),
      resource_pattern: pattern.optional(),
      expires_at: fieldPath.optional(),
      secret: fieldPath.optional(),
    })
    .prefault({}),
  /** The request that extends a channel, or finds out that it is gone. Without it, a new channel replaces the previous one. */
  renewal: z
    .strictObject({ method: channelMethod, path: channelPath, body: channelBody.optional() })
    .optional(),
  /** Without it, a channel is not stopped, and expires. */
  stop: z
    .strictObject({
      method: channelMethod.default('POST'),
      path: channelPath,
      body: channelBody.optional(),
    })
    .optional(),
  /**
   * The headers of a message that has no content. Without them, messages are webhooks with the proof of `webhook`, under the
   * secret of their channel; the address of each channel has its ID as the query parameter `channel`.
   */
  headers: z
    .strictObject({ id: headerName, token: headerName, resource: headerName, type: headerName })
    .optional(),
  /** The header by which the provider hands over the secret while it creates a channel; the response repeats it. */
  handshake: headerName.optional(),
  /** The place of the provider's ID in a message. */
  resource: place.optional(),
  /** The place in a message about the channel itself: it is renewed at once, and the syncs read what they may have missed. */
  lifecycle: place.optional(),
  /** The type of the message that only confirms a channel. */
  opening: z.string().optional(),
  /** The type to which a sync subscribes for all message types. */
  kind: z.string(),
  /** Reasons of an error that an early retry does not change. */
  lasting: z.array(z.string()).default([]),
});
export type ChannelRules = z.output<typeof channelFields>;

const channelsSchema = channelFields
  .refine(({ target, account }) => (target ?? account) !== undefined, {
    path: ['target'],
    message: 'is required, or `account`',
  })
  .superRefine((channels, context) => {
    const known = [...channelValues, ...Object.keys(channels.account?.lookup?.fields ?? {})];
    for (const [path, text] of channelTexts(channels))
      for (const [, name = ''] of text.matchAll(/(?<!\$)\{(\w*)\}/g))
        if (!known.includes(name))
          context.addIssue({ code: 'custom', path, message: `"{${name}}" is no placeholder of a channel` });
  });

type Texts = [(string | number)[], string][];

/** The texts of push channels that have placeholders, with their paths. */
function channelTexts({ target, account, body, body_for, secret, renewal, stop }: ChannelRules): Texts {
  const request = (of?: { path: string; body?: object | undefined }) =>
    of && { path: of.path, body: of.body };
  return stringsIn({
    target: request(target),
    account: { ...request(account), lookup: request(account?.lookup) },
    body,
    body_for: body_for.map((of) => ({ body: of.body })),
    secret,
    renewal: request(renewal),
    stop: request(stop),
  });
}

/**
 * Parameters of an authorization request that definitions must not set (RFC 5849 §2.2, RFC 6749 §4.1.1, RFC 7636, RFC
 * 9101).
 */
const reservedAuthorizationParams: ReadonlySet<string> = new Set([
  'client_id',
  'code_challenge',
  'code_challenge_method',
  'nonce',
  'oauth_token',
  'redirect_uri',
  'request',
  'request_uri',
  'response_mode',
  'response_type',
  'scope',
  'state',
]);

const params = z
  .record(z.string(), z.string())
  .refine((given) => Object.keys(given).every((name) => !reservedAuthorizationParams.has(name)), {
    message: 'sets a parameter that belongs to the protocol',
  });

/** One input of a form: on the connect page (`connection_config`, `credentials`) or in the integration's settings. */
const formField = z.strictObject({
  title: z.string(),
  description: z.string(),
  /** The whole value must match it. */
  pattern: pattern.optional(),
  /** `path`: slashes are kept in an address. `header_name`: a header that may carry credentials. */
  format: z.enum(['hostname', 'uri', 'uuid', 'email', 'path', 'header_name']).optional(),
  example: z.string().optional(),
  required: z.boolean().default(true),
  secret: z.boolean().default(false),
  /** Whether the value may have several lines. */
  multiline: z.boolean().optional(),
  max_length: z.int().positive().max(16_384).default(1024),
});
const form = z.record(z.string().regex(/^[A-Za-z][A-Za-z0-9_]*$/, 'is no field name'), formField);

/**
 * `ends`: the user must connect again; `restores`: connections that a notice ended are tried again; `none`: a test.
 */
const securityEffects = ['ends', 'restores', 'none'] as const;

const scopeToken = z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/, 'is no scope token (RFC 6749 §3.3)');
const scope = z.strictObject({
  sensitivity: z.enum(['non_sensitive', 'sensitive', 'restricted']),
  /** One plain English sentence for the end user who grants it. */
  description: z.string(),
  /** The same in the other languages of the connect page. */
  translations: z.partialRecord(z.enum(['de', 'fr', 'es', 'ja', 'ar']), z.string().min(1)).default({}),
  /** Other names under which the provider grants the same scope. */
  aliases: z.array(z.string()).default([]),
});

const setupStep = z
  .string()
  .min(1)
  .max(250)
  .refine(
    (text) => !/[{}]/.test(text.replace('{redirect_uri}', '')),
    'has a placeholder besides {redirect_uri}',
  );

/** A place for credentials on a request. The first of a list whose placeholders all have values is used. */
const placement = z.strictObject({
  in: z.enum(['header', 'query', 'body']),
  name: z.string().min(1),
  value: z.string().min(1),
});

/** How far the facts of a definition reach, the best first. */
export const levels = ['verified', 'documented', 'community'] as const;

const fields = z.strictObject({
  display_name: z.string().min(1),
  categories: z.array(z.string()).min(1),
  docs: z.url({ protocol: /^https$/ }),
  /**
   * How far the facts reach. `verified`: a connection of a real account used them on the day of `source`, whose page has
   * the report. `documented`: each one stood on that day on the page of `source` or in an OpenAPI file, both the
   * provider's own. `community`: they are from elsewhere, and were not compared.
   */
  level: z.enum(levels).default('community'),
  /** Where the facts were found, and on which day. */
  source: z.strictObject({ on: z.iso.date(), page: z.url({ protocol: /^https$/ }) }).optional(),
  /** The ends that the provider has announced. */
  sunset: z
    .array(
      z.strictObject({
        on: z.iso.date(),
        /** What ends and what to do, in plain English. */
        ends: z.string().min(1),
        /**
         * The connections that stop working; `without_expiry`: those whose token has neither an expiry nor a refresh
         * token.
         */
        connections: z.enum(['all', 'without_expiry']).default('all'),
        page: z.url({ protocol: /^https$/ }),
      }),
    )
    .default([]),
  /** The file in `providers/logos/`, by default named after the provider. `routes.ts` draws a missing one. */
  logo: z.string().regex(/^[a-z0-9-]+\.svg$/),
  auth_mode: z.string(),
  /** How to get a client of one's own: what to do in the provider's console, in order. `url` is its address. */
  setup: z
    .strictObject({
      url: z.url({ protocol: /^https$/ }).optional(),
      /** Plain English sentences; `{redirect_uri}` stands for the address of the callback. */
      steps: z.array(setupStep).min(1).max(8),
    })
    .optional(),

  /** The provider's identity: `iss` of its authorization responses (RFC 9207) and its id_tokens (OpenID Connect). */
  issuer: z
    .strictObject({
      url: z.string(),
      iss_in_callback: z.enum(['required', 'optional']),
      jwks_url: z.string().optional(),
    })
    .optional(),
  authorization: z
    .strictObject({
      url: z.string(),
      params: params.default({}),
      /** Parameters that the browser may set, with the pattern of their values. */
      browser_params: z
        .record(
          z.string().refine((name) => !reservedAuthorizationParams.has(name), 'belongs to the protocol'),
          z.strictObject({ pattern }),
        )
        .default({}),
      /** Parameters with which the provider issues another refresh token to an account that already has one. */
      refresh_token_params: params.optional(),
      /** The name of the parameter with the scopes, if it is not `scope`. */
      scope_param: z
        .string()
        .regex(/^[a-z_]+$/)
        .refine((name) => !reservedAuthorizationParams.has(name), 'belongs to the protocol')
        .optional(),
      pkce: z.enum(['S256', 'none']).default('S256'),
      /** The parameter of the callback with the code, if it is not `code`. */
      code_param: z
        .string()
        .regex(/^[a-z_]+$/)
        .optional(),
    })
    .optional(),
  token: tokenSchema.optional(),
  oauth1: oauth1Schema.optional(),
  login: loginSchema.optional(),
  /** What a provider of the mode JWT gets instead of a client's secret. */
  assertion: assertionSchema.optional(),
  /** The scope of the signatures of `AWS_SIGV4` at hosts other than those of AWS, which name it. */
  signature: z
    .strictObject({
      service: z.string().min(1),
      region: z.string().min(1),
      /** Of `AWS_ROLE`: the address of STS, and the role that it issues keys for. */
      assume_role: z
        .strictObject({
          url: z.string(),
          role_arn: z.string().min(1),
          /** Not sent if it has a placeholder without a value. */
          external_id: z.string().min(1).optional(),
          /** The lifetime of the keys in seconds. */
          life_s: z.int().min(900).max(43_200).default(3600),
          timeout_ms: z.int().positive().max(120_000).default(30_000),
        })
        .optional(),
    })
    .optional(),
  refresh: z
    .strictObject({
      /** If it differs from the token endpoint. */
      url: z.string().optional(),
      params: z.record(z.string(), z.string()).default({}),
      /**
       * Whether a response may contain another refresh token, which invalidates the previous one even if the response
       * is lost. Always true for a connection whose latest response contained one.
       */
      rotates: z.boolean().default(true),
      /** The lifetime of an access token if the response has no `expires_in`. */
      default_expires_in_s: seconds.default(3600),
    })
    .prefault({}),
  refresh_token_lifetime: z
    .strictObject({
      /** A refresh token expires when it is unused for this time. */
      unused_days: z.int().positive().optional(),
      /** The lifetime while the provider counts the client as a test. */
      testing_days: z.int().positive().optional(),
      /**
       * The number of valid refresh tokens for one account and client. Another one invalidates the oldest without
       * notice.
       */
      live_per_account: z.int().positive().optional(),
    })
    .prefault({}),
  revocation: z
    .strictObject({
      url: z.string(),
      /**
       * What a revocation ends: every grant of the account to the client's project, to the client, or only the
       * token's.
       */
      unit: z.enum(['project', 'client', 'token']),
      /** Its first group is the project in a client ID; a client ID that does not match is a project of its own. */
      project_pattern: pattern
        .startsWith(
          '^(',
          'must match the start of a client ID: other clients of the project have the same start',
        )
        .optional(),
      client_auth: z.enum(['none', 'token']).default('token'),
      /** Errors for a token that is already dead. */
      done_errors: z.array(z.string()).default([]),
    })
    .optional(),
  /** Signed notices about accounts (RFC 8417, RFC 8935, OpenID RISC), sent to an integration's webhook. */
  security_events: z
    .strictObject({
      /** Every form of `iss`. */
      issuers: z.array(z.string()).min(1),
      jwks_url: z.string(),
      /**
       * The effect of an event type, named below https://schemas.openid.net/secevent/, on the account's connections.
       * Other types are accepted and change nothing.
       */
      types: z.record(z.string(), z.enum(securityEffects)),
    })
    .optional(),
  /** Other webhooks of the provider, such as changes of data: for functions that subscribe to them. */
  webhook: webhookSchema.optional(),
  /** Push channels with changes of data: a subscribed sync runs soon after one. */
  channels: channelsSchema.optional(),
  userinfo: z
    .strictObject({
      url: z.string(),
      /** The paths of the fields, a dot for each step inside: `data.id`. */
      subject: z.string().default('sub'),
      email: z.string().default('email'),
      email_verified: z.string().default('email_verified'),
      name: z.string().default('name'),
    })
    .optional(),
  /** The field of `connection_config` with the ID of the account, if no endpoint tells it. */
  account_from: z.string().min(1).optional(),
  scopes: z
    .strictObject({
      separator: z.string().min(1).default(' '),
      /** The separator of granted scopes, if it is neither that of a request nor a space. */
      granted_separator: z.string().min(1).optional(),
      /** Scopes that responses never contain, although they were granted. */
      unnamed: z.array(scopeToken).optional(),
      /** Whether a request for further scopes adds to the grant of the account without losing any of it. */
      incremental: z.boolean().default(false),
      default: z.array(scopeToken).default([]),
      catalogue: z.record(scopeToken, scope).default({}),
    })
    .prefault({}),

  api: apiSchema,
  placement: z.array(placement).default([]),
  verification: z
    .strictObject({
      method: z.enum(['GET', 'HEAD', 'POST']).default('GET'),
      path: z.string().startsWith('/'),
      /** If it differs from that of the API. */
      base_url: z.string().optional(),
    })
    .optional(),
  connection_config: form.default({}),
  integration_config: form.default({}),
  credentials: form.default({}),
  /** The paths of these endpoints at the sandbox. A definition without them cannot be used with test credentials. */
  sandbox: z
    .strictObject({
      authorization: z.string().startsWith('/').optional(),
      token: z.string().startsWith('/'),
      revocation: z.string().startsWith('/').optional(),
      userinfo: z.string().startsWith('/').optional(),
      jwks: z.string().startsWith('/').optional(),
      api: z.string().startsWith('/').or(z.literal('')).default(''),
    })
    .optional(),
});

/**
 * The schema of a whole definition, after its bases are merged in, for these auth modes. Issues carry the path inside
 * the file.
 */
export function definitionSchema(modes: AuthModeTable) {
  const placeholders = [...modes.values()].flatMap((mode) => mode.placeholders.map((name) => [name, {}]));
  const ofCredentials = Object.fromEntries(placeholders);
  const schema = fields.extend({ auth_mode: z.enum([...modes.keys()]) });
  return schema.superRefine((definition, context) => {
    const report = (path: (string | number)[], message: string) =>
      context.addIssue({ code: 'custom', path, message });
    if (definition.level !== 'community' && definition.source === undefined)
      report(['level'], `"${definition.level}" requires a source`);
    const mode = modes.get(definition.auth_mode);
    const own = templateFields(definition);
    const known = { ...own, credentials: { ...ofCredentials, ...own.credentials } };
    let ownCredentialsOnly = mode?.ownCredentialsOnly === true;
    for (const [path, template] of textsOf(definition)) {
      for (const fault of textFaults(template, { fields: known })) report(path, fault);
      if (hasSecretSetting(template, definition)) ownCredentialsOnly = false;
    }
    for (const [path, template] of addressesOf(definition)) {
      for (const fault of addressFaults(template, { fields: known, ownCredentialsOnly })) report(path, fault);
    }
    for (const [path, message] of mode?.definitionFaults?.(definition) ?? []) report(path, message);
    for (const [name, template] of Object.entries(definition.token?.params ?? {})) {
      if (template.includes('${credentials.'))
        report(['token', 'params', name], 'a credential is not allowed here: the protocol defines its place');
    }
    for (const [name, template] of Object.entries(definition.token?.client_assertion ?? {})) {
      if (template?.includes('${credentials.'))
        report(['token', 'client_assertion', name], 'a credential is not allowed here');
    }
    for (const [index, choice] of definition.placement.entries()) {
      for (const message of placementFaults(choice, known)) report(['placement', index, 'name'], message);
    }
    const { channels, webhook, account_from: account } = definition;
    if (channels !== undefined && channels.headers === undefined && webhook === undefined)
      report(['channels', 'headers'], 'is required, or the section `webhook` for the proof of messages');
    if (account !== undefined && !Object.hasOwn(definition.connection_config, account))
      report(['account_from'], `connection_config has no field "${account}"`);
    if (definition.verification && definition.placement.some((choice) => choice.in === 'body')) {
      report(
        ['verification'],
        'the request that verifies credentials has no body, so the body cannot contain credentials',
      );
    }
    if (definition.verification && (definition.verification.base_url ?? definition.api.base_url) === null)
      report(['verification', 'base_url'], 'is required if the API has none');
    for (const [index, name] of definition.scopes.default.entries()) {
      if (Object.hasOwn(definition.scopes.catalogue, name)) continue;
      report(['scopes', 'default', index], `"${name}" is not in the catalogue`);
    }
  });
}

/** The rules of an auth mode for definitions; `auth-modes/` implements them. */
export type AuthModeRules = {
  /** As the definitions and the wire write it: `API_KEY`. */
  readonly name: string;
  /** The names that `${credentials.x}` of a definition may have without a form field of that name. */
  readonly placeholders: readonly string[];
  /** Whether an integration has an OAuth client at the provider. */
  readonly client: 'required' | 'optional' | 'none';
  /** Whether all secrets of a call belong to the connection, so that a connection may choose a whole host. */
  readonly ownCredentialsOnly: boolean;
  /** What the mode requires of a definition and this definition lacks: the path inside the file, and a message. */
  readonly definitionFaults?: (definition: DefinitionFields) => [path: string[], message: string][];
};
export type AuthModeTable = ReadonlyMap<string, AuthModeRules>;

type DefinitionFields = z.output<typeof fields>;
/** A definition of the catalogue; `name` is the name of its file. */
export type ProviderDefinition = DefinitionFields & { readonly name: string };
export type WebhookRules = z.output<typeof webhookSchema>;
export type WebhookSignature = z.output<typeof proof>;
export type WebhookPlace = z.output<typeof place>;
export type WebhookRecipient = NonNullable<WebhookRules['connection']>[number];
export type ProviderQuota = z.output<typeof quotaSchema>;
export type FormField = z.output<typeof formField>;
export type FaultKind = (typeof faultKinds)[number];

/** The form fields for the placeholders of a definition, as `template.ts` takes them. */
export function templateFields(
  definition: Pick<DefinitionFields, 'connection_config' | 'integration_config' | 'credentials'>,
): TemplateFields {
  return {
    connectionConfig: definition.connection_config,
    integrationConfig: definition.integration_config,
    credentials: definition.credentials,
  };
}

/** The addresses of a definition that are templates, with their paths in the definition. */
export function addressesOf(definition: DefinitionFields): [string[], string][] {
  const found: [string[], string | null | undefined][] = [
    [['issuer', 'jwks_url'], definition.issuer?.jwks_url],
    [['authorization', 'url'], definition.authorization?.url],
    [['token', 'url'], definition.token?.url],
    [['oauth1', 'request_url'], definition.oauth1?.request_url],
    [['signature', 'assume_role', 'url'], definition.signature?.assume_role?.url],
    [['login', 'url'], definition.login?.url],
    [['login', 'renewal', 'url'], definition.login?.renewal?.url],
    [['refresh', 'url'], definition.refresh.url],
    [['revocation', 'url'], definition.revocation?.url],
    [['security_events', 'jwks_url'], definition.security_events?.jwks_url],
    [['userinfo', 'url'], definition.userinfo?.url],
    [['api', 'base_url'], definition.api.base_url],
    [['verification', 'base_url'], definition.verification?.base_url],
    [['channels', 'base_url'], definition.channels?.base_url],
  ];
  return found.filter((entry): entry is [string[], string] => typeof entry[1] === 'string');
}

function textsOf(definition: DefinitionFields): Texts {
  const texts: Texts = Object.entries(definition.api.headers).map(([name, value]) => [
    ['api', 'headers', name],
    value,
  ]);
  for (const [index, { name, value }] of definition.placement.entries()) {
    texts.push([['placement', index, 'name'], name], [['placement', index, 'value'], value]);
  }
  for (const [name, value] of Object.entries(definition.token?.params ?? {})) {
    texts.push([['token', 'params', name], value]);
  }
  for (const [name, value] of Object.entries(definition.token?.client_assertion ?? {})) {
    if (value !== undefined) texts.push([['token', 'client_assertion', name], value]);
  }
  for (const [path, text] of definition.assertion ? assertionTexts(definition.assertion) : []) {
    texts.push([['assertion', ...path], text]);
  }
  if (definition.verification) texts.push([['verification', 'path'], definition.verification.path]);
  const { assume_role: role, ...scope } = definition.signature ?? {};
  for (const [name, value] of Object.entries(scope)) texts.push([['signature', name], value]);
  for (const name of ['role_arn', 'external_id'] as const)
    if (role?.[name] !== undefined) texts.push([['signature', 'assume_role', name], role[name]]);
  const { renewal, ...login } = definition.login ?? {};
  const { channels } = definition;
  for (const [path, text] of channels ? channelTexts(channels) : [])
    texts.push([['channels', ...path], text]);
  return [...texts, ...loginTexts(login, ['login']), ...loginTexts(renewal, ['login', 'renewal'])];
}

/** Whether the text has a secret of the integration. */
function hasSecretSetting(
  template: string,
  { integration_config: settings }: Pick<DefinitionFields, 'integration_config'>,
): boolean {
  return Object.entries(settings).some(
    ([name, { secret }]) => secret && template.includes(`\${integrationConfig.${name}}`),
  );
}

/** The texts in a value, with their paths below `at`. */
function stringsIn(value: unknown, at: (string | number)[] = []): Texts {
  if (typeof value === 'string') return [[at, value]];
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, inner]) => stringsIn(inner, [...at, name]));
}

/** The texts in headers and body of a login, with their paths. */
function loginTexts(
  { headers, basic, form, json }: Partial<LoginRequest> = {},
  at: (string | number)[],
): Texts {
  return stringsIn({ headers, basic, form, json }, at);
}

function isPattern(text: string): boolean {
  try {
    new RegExp(text, 'u');
    return true;
  } catch {
    return false;
  }
}
