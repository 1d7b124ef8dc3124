import { z } from 'zod';

/** What the reason of an API's error may say beyond its status; see `connections/api-faults.ts`. */
const API_REASONS = ['scope_missing', 'api_disabled', 'rate_limited'] as const;

/** A regular expression, read with the flag `u`. */
export const patternSchema = z.string().refine(isPattern, 'is no valid regular expression');
const headerName = z.string().regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/, 'is no header name');

/** How many calls the provider takes, and whose they count as. */
export const quotaSchema = z.strictObject({
  /** The API that counts: definitions that name the same share its budgets. */
  service: z.string().min(1),
  /** Its first group is the owner of the budgets in a client ID; else each client is an owner of its own. */
  owner_pattern: patternSchema.optional(),
  /** Which calls are reads, as `METHOD /path`; all others are writes. */
  reads: patternSchema.default('^(GET|HEAD|OPTIONS) '),
  limits: z
    .array(
      z.strictObject({
        name: z.string().regex(/^[A-Za-z0-9._-]+$/),
        /** All calls of the owner, or those of one account with this owner. */
        per: z.enum(['owner', 'account']),
        counts: z.enum(['read', 'write', 'all']),
        count: z.int().positive(),
        window_s: z.number().positive(),
        /** How many may go at once where many share the limit; beyond them calls are spread evenly. */
        burst: z.int().positive().optional(),
      }),
    )
    .min(1),
});

const fieldPath = z.string().min(1);
const parameter = z.string().min(1);
const ofPages = {
  /** Where the items stand in an answer, a dot for each step inside; absent: the answer is the list, or it differs by call. */
  response_path: fieldPath.optional(),
  /** Asked for where a function asks for no other number. */
  limit: z.int().positive().optional(),
  limit_name_in_request: parameter.optional(),
  in_body: z.boolean().optional(),
};
/** How the API hands out lists in pages: what a function's `paginate` goes by where the function says nothing else. */
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

/** The API that the proxy calls: where it is, what goes along, how it answers. */
export const apiSchema = z.strictObject({
  base_url: z.string(),
  /**
   * Further addresses of the provider's that a Base-Url-Override may name without a setting of the integration. Read as
   * where each leads: to itself, but for the sandbox.
   */
  other_base_urls: z
    .array(z.url({ protocol: /^https$/ }))
    .default([])
    .transform((urls): Record<string, string> => Object.fromEntries(urls.map((url) => [url, url]))),
  /** Sent with each call; values may hold placeholders. */
  headers: z.record(headerName, z.string()).default({}),
  /** Caller's headers that go on besides those every provider gets. */
  pass_headers: z.array(headerName).default([]),
  /** What competes with the connection's identity and is cut out of each call. Lower case. */
  forbid: z
    .strictObject({
      headers: z.array(headerName.toLowerCase()).default([]),
      query: z.array(z.string()).default([]),
    })
    .prefault({}),
  /** By which the API does something else than method and path say, beside the usual ones: refused where rules bind. */
  overrides: z
    .strictObject({
      headers: z.array(headerName).default([]),
      query: z.array(z.string().min(1)).default([]),
    })
    .prefault({}),
  /** Path prefixes that also count at our root, for clients that keep no path prefix. */
  root_aliases: z.array(z.string().regex(/^\/[A-Za-z0-9/._-]+$/)).default([]),
  /** How the API writes its errors, and how ours are written on the proxy. */
  error_format: z.enum(['google']).optional(),
  errors: z
    .strictObject({
      /** What an error says, by the reason that it names. */
      reasons: z.record(z.string(), z.enum(API_REASONS)).default({}),
      /** A quota whose name matches is one account's; any other is the whole client's. */
      account_quota: patternSchema.optional(),
      /** Whether an HTML page with 403 or 429 is the provider's guard against robots. */
      guard_pages: z.boolean().default(false),
    })
    .prefault({}),
  /** `relay` hands a redirect to the caller; `same_origin` follows it where it stays at the API's origin. */
  redirects: z.enum(['relay', 'same_origin']).default('relay'),
  timeouts: z
    .strictObject({
      connect_ms: z.int().positive().default(10_000),
      headers_ms: z.int().positive().default(300_000),
      body_idle_ms: z.int().positive().default(300_000),
      /** Of the whole call, attempts and waits included; without it there is no such limit. */
      total_ms: z.int().positive().optional(),
    })
    .prefault({}),
  quota: quotaSchema.optional(),
  paginate: paginateSchema.optional(),
  /** Shortest waits that the provider asks for before a retry when it names none. */
  retry_wait_ms: z.strictObject({ too_many: z.int().positive(), unavailable: z.int().positive() }).optional(),
});

function isPattern(text: string): boolean {
  try {
    new RegExp(text, 'u');
    return true;
  } catch {
    return false;
  }
}
