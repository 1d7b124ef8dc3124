/**
 * The schema of a provider definition: what one YAML file of `providers/` may say. A definition is data, never code,
 * and keeps the snake_case of its file, which is also what `GET /providers` shows.
 *
 * Neighbours: `definition-token.ts`, `definition-api.ts` and `definition-webhook.ts` hold large sections, `source.ts` reads the files, `catalog.ts` collects all faults at start, `template.ts` owns the rules
 * for placeholders, `auth-modes/` and the proxy obey what is written here.
 */
import { z } from 'zod';
import { apiSchema, patternSchema as pattern, type quotaSchema } from './definition-api.ts';
import { channelsSchema } from './definition-channels.ts';
import { type FAULT_KINDS, tokenSchema } from './definition-token.ts';
import { webhookSchema } from './definition-webhook.ts';
import { addressFaults, placementFaults, textFaults } from './template-faults.ts';
import type { TemplateFields } from './template-grammar.ts';

/** Parameters of an authorization request that only we may set (RFC 6749 §4.1.1, RFC 7636, RFC 9101). */
const RESERVED_AUTHORIZATION_PARAMS: ReadonlySet<string> = new Set([
  'client_id',
  'code_challenge',
  'code_challenge_method',
  'nonce',
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
  .refine((given) => Object.keys(given).every((name) => !RESERVED_AUTHORIZATION_PARAMS.has(name)), {
    message: 'sets a parameter that belongs to the protocol',
  });
const seconds = z.int().positive();

/** One input of a form: in the connect page (`connection_config`, `credentials`) or the integration's settings. */
const formField = z.strictObject({
  title: z.string(),
  description: z.string(),
  /** The whole value must match it. */
  pattern: pattern.optional(),
  /** `path`: slashes stay when it is put into an address. `header_name`: of a header that may carry credentials. */
  format: z.enum(['hostname', 'uri', 'uuid', 'email', 'path', 'header_name']).optional(),
  example: z.string().optional(),
  required: z.boolean().default(true),
  secret: z.boolean().default(false),
  max_length: z.int().positive().max(8192).default(1024),
});
const form = z.record(z.string().regex(/^[A-Za-z][A-Za-z0-9_]*$/, 'is no field name'), formField);

/** `ends`: the user has to connect again; `restores`: what a notice ended is tried again; `none`: a test. */
const SECURITY_EFFECTS = ['ends', 'restores', 'none'] as const;

const scopeToken = z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/, 'is no scope token (RFC 6749 §3.3)');
const scope = z.strictObject({
  sensitivity: z.enum(['non_sensitive', 'sensitive', 'restricted']),
  /** One plain sentence for the person who is asked to allow it, in English. */
  description: z.string(),
  /** The same in the other languages of the connect page. */
  translations: z.partialRecord(z.enum(['de', 'fr', 'es', 'ja']), z.string().min(1)).default({}),
  /** Other spellings by which the provider grants the same. */
  aliases: z.array(z.string()).default([]),
});

/** One way to put credentials on a request. The first of a list whose placeholders all have values is used. */
const placement = z.strictObject({
  in: z.enum(['header', 'query', 'body']),
  name: z.string().min(1),
  value: z.string().min(1),
});

const fields = z.strictObject({
  display_name: z.string().min(1),
  categories: z.array(z.string()).min(1),
  docs: z.url({ protocol: /^https$/ }),
  /**
   * `on`: when the endpoints were last read off `page`, the provider's own. `unverified since`: when they were written,
   * where they were never compared with such a page.
   */
  verified: z
    .union(
      [
        z.string().regex(/^unverified(?: since \d{4}-\d{2}-\d{2})?$/),
        z.strictObject({ on: z.iso.date(), page: z.url({ protocol: /^https$/ }) }),
      ],
      { error: 'is neither "unverified since" a date nor "on", a date, with "page", an https address' },
    )
    .default('unverified'),
  /** What the provider has announced to end, and when. */
  sunset: z
    .array(
      z.strictObject({
        on: z.iso.date(),
        /** What ends and what to do, in plain English. */
        ends: z.string().min(1),
        /** Which connections stop working; `without_expiry`: whose token has no end and no refresh token. */
        connections: z.enum(['all', 'without_expiry']).default('all'),
        page: z.url({ protocol: /^https$/ }),
      }),
    )
    .default([]),
  /** File in `providers/logos/`; one that is not there is drawn by `routes.ts`. Named after the provider if absent. */
  logo: z.string().regex(/^[a-z0-9-]+\.svg$/),
  auth_mode: z.enum(['OAUTH2', 'OAUTH2_CC', 'API_KEY', 'BASIC', 'NONE']),

  /** The provider's identity: `iss` of its authorization answers (RFC 9207) and its id_tokens (OpenID Connect). */
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
      /** Parameters that may come from the browser, with the pattern that a value must match. */
      browser_params: z
        .record(
          z.string().refine((name) => !RESERVED_AUTHORIZATION_PARAMS.has(name), 'belongs to the protocol'),
          z.strictObject({ pattern }),
        )
        .default({}),
      /** What makes the provider give a refresh token to an account that it has given one before. */
      refresh_token_params: params.optional(),
      /** What the parameter with the scopes is called, where it is not `scope`. */
      scope_param: z
        .string()
        .regex(/^[a-z_]+$/)
        .refine((name) => !RESERVED_AUTHORIZATION_PARAMS.has(name), 'belongs to the protocol')
        .optional(),
      pkce: z.enum(['S256', 'none']).default('S256'),
    })
    .optional(),
  token: tokenSchema.optional(),
  refresh: z
    .strictObject({
      /** Where it differs from the token endpoint. */
      url: z.string().optional(),
      params: z.record(z.string(), z.string()).default({}),
      /**
       * Whether an answer may bring another refresh token, so that the one in use is over where the answer is lost. A
       * connection whose latest answer did bring one counts as such, whatever stands here.
       */
      rotates: z.boolean().default(true),
      /** Life of an access token whose answer names none. Case: `expires_in` absent. */
      default_expires_in_s: seconds.default(3600),
    })
    .prefault({}),
  refresh_token_lifetime: z
    .strictObject({
      /** A refresh token dies when it has not been used for so long. */
      unused_days: z.int().positive().optional(),
      /** Life while the provider counts the client as under test. */
      testing_days: z.int().positive().optional(),
      /** More of them alive for one account and client, and the oldest dies without notice. */
      live_per_account: z.int().positive().optional(),
    })
    .prefault({}),
  revocation: z
    .strictObject({
      url: z.string(),
      /** What ends: every grant of the account to the client's project, to the client, or only what the token names. */
      unit: z.enum(['project', 'client', 'token']),
      /** Its first group is the project in a client ID; a client ID that does not match is a project of its own. */
      project_pattern: pattern
        .startsWith('^(', 'must take the beginning of a client ID, by which others of the project are found')
        .optional(),
      client_auth: z.enum(['none', 'token']).default('token'),
      /** Errors that say the token is dead already. */
      done_errors: z.array(z.string()).default([]),
    })
    .optional(),
  /** Signed notices of what happens to accounts (RFC 8417, RFC 8935, OpenID RISC), sent to an integration's webhook. */
  security_events: z
    .strictObject({
      /** Every spelling of `iss`. */
      issuers: z.array(z.string()).min(1),
      jwks_url: z.string(),
      /**
       * What an event type, named below https://schemas.openid.net/secevent/, does to the account's connections. Types
       * not named are accepted and change nothing.
       */
      types: z.record(z.string(), z.enum(SECURITY_EFFECTS)),
    })
    .optional(),
  /** What else it sends to an integration's webhook, such as changes of data: for functions that subscribe to it. */
  webhook: webhookSchema.optional(),
  /** By which it tells of changes for a while once it was asked to: syncs that subscribe to them run soon after one. */
  channels: channelsSchema.optional(),
  userinfo: z
    .strictObject({
      url: z.string(),
      /** Where the fields lie, a dot for each step inside: `data.id`. */
      subject: z.string().default('sub'),
      email: z.string().default('email'),
      email_verified: z.string().default('email_verified'),
      name: z.string().default('name'),
    })
    .optional(),
  scopes: z
    .strictObject({
      separator: z.string().min(1).default(' '),
      /** What stands between granted scopes, where it is neither the separator of a request nor a space. */
      granted_separator: z.string().min(1).optional(),
      /** Scopes that answers never name, although they were granted. */
      unnamed: z.array(scopeToken).optional(),
      /** Whether a request for further scopes alone adds to what the account has granted, and loses none of it. */
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
    })
    .optional(),
  connection_config: form.default({}),
  integration_config: form.default({}),
  credentials: form.default({}),
  /** Paths of the same endpoints at the sandbox. A definition without them cannot be used with test credentials. */
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

/** A whole definition, after its bases are merged in. Issues carry the path inside the file. */
export const definitionSchema = fields.superRefine((definition, context) => {
  const report = (path: (string | number)[], message: string) =>
    context.addIssue({ code: 'custom', path, message });
  const known = templateFields(definition);
  const ownCredentialsOnly = definition.auth_mode === 'API_KEY' || definition.auth_mode === 'BASIC';
  for (const [path, template] of addressesOf(definition)) {
    for (const fault of addressFaults(template, { fields: known, ownCredentialsOnly })) report(path, fault);
  }
  for (const [path, template] of textsOf(definition)) {
    for (const fault of textFaults(template, { fields: known })) report(path, fault);
  }
  if (definition.auth_mode === 'OAUTH2') {
    if (definition.authorization === undefined) report(['authorization'], 'an OAUTH2 provider needs it');
    if (definition.token === undefined) report(['token'], 'an OAUTH2 provider needs it');
    if (definition.sandbox !== undefined && definition.sandbox.authorization === undefined)
      report(['sandbox', 'authorization'], 'an OAUTH2 provider needs it');
  }
  if (definition.auth_mode === 'OAUTH2_CC') {
    if (definition.token === undefined) report(['token'], 'an OAUTH2_CC provider needs it');
    if (definition.authorization !== undefined)
      report(['authorization'], 'an OAUTH2_CC provider sends nobody there');
    if (definition.token?.auth_method === 'none')
      report(['token', 'auth_method'], 'an OAUTH2_CC client proves itself by its secret');
  }
  for (const [name, template] of Object.entries(definition.token?.params ?? {})) {
    if (template.includes('${credentials.'))
      report(['token', 'params', name], 'a credential goes where the protocol puts it');
  }
  for (const [index, choice] of definition.placement.entries()) {
    for (const message of placementFaults(choice, known)) report(['placement', index, 'name'], message);
  }
  if (definition.auth_mode === 'API_KEY' && definition.placement.length === 0) {
    report(['placement'], 'an API_KEY provider says where the key goes');
  }
  if (definition.verification !== undefined && definition.placement.some((choice) => choice.in === 'body')) {
    report(['verification'], 'the call that tries credentials has no body to carry them');
  }
  for (const [index, name] of definition.scopes.default.entries()) {
    if (Object.hasOwn(definition.scopes.catalogue, name)) continue;
    report(['scopes', 'default', index], `"${name}" is not in the catalogue`);
  }
});

type DefinitionFields = z.output<typeof fields>;
/** A definition of the catalogue; `name` is that of its file. */
export type ProviderDefinition = DefinitionFields & { readonly name: string };
export type ProviderQuota = z.output<typeof quotaSchema>;
export type FormField = z.output<typeof formField>;
export type AuthModeName = ProviderDefinition['auth_mode'];
export type FaultKind = (typeof FAULT_KINDS)[number];

/** The fields that a definition's placeholders may name, as `template.ts` wants them. */
export function templateFields(
  definition: Pick<DefinitionFields, 'connection_config' | 'integration_config' | 'credentials'>,
): TemplateFields {
  return {
    connectionConfig: definition.connection_config,
    integrationConfig: definition.integration_config,
    credentials: { ...CREDENTIAL_FIELDS, ...definition.credentials },
  };
}

/** What the credentials of each mode hold, whether or not a definition dresses them up as form fields. */
const CREDENTIAL_FIELDS = Object.fromEntries(
  ['accessToken', 'apiKey', 'basic', 'clientId', 'username', 'password'].map((name) => [name, {}]),
);

/** Its addresses that are templates, and where in the definition they stand. */
export function addressesOf(definition: DefinitionFields): [string[], string][] {
  const found: [string[], string | undefined][] = [
    [['issuer', 'jwks_url'], definition.issuer?.jwks_url],
    [['authorization', 'url'], definition.authorization?.url],
    [['token', 'url'], definition.token?.url],
    [['refresh', 'url'], definition.refresh.url],
    [['revocation', 'url'], definition.revocation?.url],
    [['security_events', 'jwks_url'], definition.security_events?.jwks_url],
    [['userinfo', 'url'], definition.userinfo?.url],
    [['api', 'base_url'], definition.api.base_url],
  ];
  return found.filter((entry): entry is [string[], string] => entry[1] !== undefined);
}

function textsOf(definition: DefinitionFields): [(string | number)[], string][] {
  const texts: [(string | number)[], string][] = Object.entries(definition.api.headers).map(
    ([name, value]) => [['api', 'headers', name], value],
  );
  for (const [index, { name, value }] of definition.placement.entries()) {
    texts.push([['placement', index, 'name'], name], [['placement', index, 'value'], value]);
  }
  for (const [name, value] of Object.entries(definition.token?.params ?? {})) {
    texts.push([['token', 'params', name], value]);
  }
  if (definition.verification) texts.push([['verification', 'path'], definition.verification.path]);
  return texts;
}
