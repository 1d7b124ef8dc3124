/**
 * The headers that a setting may name for credentials. Pure.
 *
 * The list cannot be complete: a server may return any header. The first guard limits who may change such a setting
 * (`integrations/destinations.ts`). This one refuses the names that servers, frameworks and proxies return or
 * interpret by default, since a caller of the proxy could read the credentials in the response.
 */

/**
 * They frame the message or belong to one hop (RFC 9110 §7.2, §7.6.1). They never carry credentials, whether a
 * definition or a setting names them.
 */
const framing = [
  'connection', 'content-encoding', 'content-length', 'content-type', 'expect', 'host', 'http2-settings',
  'keep-alive', 'proxy-authenticate', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade',
]; // biome-ignore format: a list reads better in lines

const identifies = 'is returned by servers to identify the request';

/** Names, or prefixes that end in `*`, normalized by `normalizedHeaderName`, and why a setting may not name them. */
const refused: readonly (readonly [why: string, names: readonly string[]])[] = [
  ['frames the message or belongs to one connection', [...framing, 'proxy-*']],
  [
    // Rails and Envoy: x-request-id; Kong: kong-request-id; Elasticsearch: x-opaque-id; Azure: client-request-id;
    // Stripe: idempotency-key; MCP: mcp-session-id. Others are found by `identifier` below.
    identifies,
    [
      'b3', 'baggage', 'correlation-context', 'elastic-apm-*', 'grpc-trace-bin', 'grpc-tags-bin', 'idempotency-key',
      'x-idempotency-key', 'last-event-id', 'mcp-*', 'newrelic', 'sentry-trace', 'traceparent', 'traceresponse',
      'tracestate', 'uberctx-*', 'x-b3-*', 'x-cloud-trace-context', 'x-datadog-*', 'x-ot-span-context', 'x-amz-cf-*',
    ],
  ],
  // CORS middleware returns both in Access-Control-Allow-*.
  ['is returned by servers that answer cross-origin requests', ['origin', 'access-control-*']],
  [
    // Servers build redirects and links from them, and services that show the caller's address return them.
    'is used by servers to build addresses',
    [
      'cf-connecting-ip', 'cf-connecting-ipv6', 'cf-ipcountry', 'cf-ray', 'cf-visitor', 'fastly-client-ip', 'forwarded', 'from',
      'front-end-https', 'max-forwards', 'referer', 'true-client-ip', 'via', 'x-client-ip', 'x-cluster-client-ip', 'x-forwarded', 'x-forwarded-*', 'x-host', 'x-http-host-override',
      'x-original-*', 'x-real-ip', 'x-rewrite-url', 'x-script-name', 'x-url-scheme',
    ],
  ],
  [
    // Messages such as `Unsupported media type "..."` and `Method "..." not allowed`, Content-Range, Preference-Applied.
    'is quoted by servers in their answers',
    [
      'accept', 'accept-*', 'cache-control', 'content-*', 'date', 'if-*', 'pragma', 'prefer', 'range', 'sec-*', 'user-agent',
      'warning', 'x-http-method', 'x-http-method-override', 'x-method-override', 'x-requested-with',
    ],
  ],
  ['belongs to the session of a browser, which servers renew', ['cookie', 'cookie2', 'set-cookie', 'set-cookie2']],
]; // biome-ignore format: a list reads better in lines

/** `X-Request-Id`, `Kong-Request-ID`, `X-Amzn-Trace-Id`, `X-RequestId`, ... */
const identifier = /(?:^|-)(?:correlation|opaque|request|span|trace|transaction)-?id$/;

const reasons = new Map(refused.flatMap(([why, names]) => names.map((name) => [name, why] as const)));
const beginnings = [...reasons].filter(([name]) => name.endsWith('*'));
const framingNames = new Set([...framing, 'forwarded']);

/** Why a setting may not name this header for credentials, as the end of a sentence; undefined if it may. */
export function credentialHeaderFault(name: string): string | undefined {
  const read = normalizedHeaderName(name);
  if (identifier.test(read)) return identifies;
  const known = reasons.get(read);
  if (known !== undefined) return known;
  return beginnings.find(([start]) => read.startsWith(start.slice(0, -1)))?.[1];
}

/**
 * Whether a definition may not name it either: it is not a token (RFC 9110 §5.6.2), frames the message or is
 * `Forwarded`.
 */
export function isUnsendable(name: string): boolean {
  return framingNames.has(name.toLowerCase()) || !/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name);
}

/**
 * A name as servers read it that turn it into a variable (CGI, RFC 3875 §4.1.18): any character except letters and
 * digits becomes a hyphen, so that `X_Request_Id` is `X-Request-Id`.
 */
export function normalizedHeaderName(name: string): string {
  return name.toLowerCase().replace(/[^a-z\d]/g, '-');
}
