import { z } from 'zod';

/** What a fault at the token endpoint means; see `auth-modes/token-fault.ts` for what each kind leads to. */
export const FAULT_KINDS = [
  'denied',
  'dead_grant',
  'session_policy',
  'blocked_by_admin',
  'client_misconfigured',
  'transient',
  'protocol',
] as const;

/** Parameters of a token request that only we may set (RFC 6749 §4.1.3, §4.4.2, §2.3.1, RFC 7636). */
const RESERVED_TOKEN_PARAMS: ReadonlySet<string> = new Set([
  'client_id',
  'client_secret',
  'code',
  'code_verifier',
  'grant_type',
  'redirect_uri',
  'refresh_token',
]);

/** The token endpoint of a definition: how it is asked, and how its answers depart from RFC 6749 §5.1. */
export const tokenSchema = z.strictObject({
  url: z.string(),
  /** Sent with each request for a first token; one whose placeholders were left empty is not. */
  params: z
    .record(
      z.string().refine((name) => !RESERVED_TOKEN_PARAMS.has(name), 'belongs to the protocol'),
      z.string(),
    )
    .default({}),
  /** RFC 6749 §2.3.1, as named by RFC 7591. */
  auth_method: z.enum(['client_secret_post', 'client_secret_basic', 'none']).default('client_secret_post'),
  /** How a request is written; `form` where this is absent (RFC 6749 §4.1.3). */
  body: z.enum(['form', 'json']).optional(),
  timeout_ms: z.int().positive().max(120_000).default(30_000),
  answer: z
    .strictObject({
      /** How a successful answer is written, where the provider departs from RFC 6749 §5.1. */
      format: z.enum(['json', 'form']).default('json'),
      /** Where the token object lies, for example `authed_user`; an answer without it is the token object itself. */
      token_path: z.string().optional(),
      /** For a provider that leaves `token_type` out. */
      default_token_type: z.string().optional(),
      /** Token types of its own that are sent as Bearer all the same. */
      bearer_token_types: z.array(z.string()).default([]),
      /** Whether an answer of 200 may hold an error, and in which field. */
      error_in_success: z.string().optional(),
      /** Field of an error answer that says which error it is, where `error` does not. */
      error: z.string().optional(),
      /** Field with the life of the access token in seconds, where it is not `expires_in`. */
      expires_in: z.string().optional(),
      /** Field with the end of the access token, an ISO 8601 date or Unix seconds, where no `expires_in` comes. */
      expires_at: z.string().optional(),
      /** Field with the life of the refresh token in seconds, where it is not `refresh_token_expires_in`. */
      refresh_expires_in: z.string().optional(),
      /** Field with the granted scopes, where it is not `scope`. */
      scope: z.string().optional(),
    })
    .prefault({}),
  /**
   * Meaning of `error`, or of `error/error_subtype`, beyond the codes of RFC 6749 §5.2. `client_refused`, as
   * `invalid_client` there: misconfigured is the client itself, which is not known or whose secret is wrong.
   */
  errors: z.record(z.string(), z.enum([...FAULT_KINDS, 'client_refused'])).default({}),
});
