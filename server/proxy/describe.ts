import type { Brand } from '../brand.ts';
import { byStatus, connectionErrors, type RouteError } from '../http/describe.ts';
import { failed, type Operation, type PathItem } from '../http/openapi-operation.ts';

const verbs = {
  get: 'Get',
  put: 'Put',
  post: 'Post',
  patch: 'Patch',
  delete: 'Delete',
  head: 'Head',
  options: 'Options',
};
const text = { type: 'string' };

/** `/proxy/...` as the document has it: no route, since the proxy is asked before the router. docs/proxy.md says more. */
export function proxyPaths(brand: Brand): Record<string, PathItem> {
  const item = Object.entries(verbs).map(([method, verb]): [string, Operation] => [
    method,
    {
      operationId: `proxy${verb}`,
      summary: `Call the provider's API with ${method.toUpperCase()}`,
      description:
        "Path, query, headers and body go on as they are, with the connection's credentials; the answer comes back as it " +
        `is, streamed. A header \`${brand.proxyHeaderPrefix}<name>\` goes on as \`<name>\`. The paths of a provider are ` +
        'served without `/proxy`, too, where both connection headers are there. Errors of ours carry the header ' +
        `${brand.header('Error')}.`,
      tags: ['proxy'],
      security: [{ key: [] }, { ticket: [] }, { cookie: [] }],
      ...{ 'x-scope': ['get', 'head'].includes(method) ? 'proxy:read' : 'proxy:write' },
      parameters: [
        {
          name: 'path',
          in: 'path',
          required: true,
          description: 'Path and query at the provider. Its slashes stay as they are.',
          schema: text,
          example: 'v4/spreadsheets/none',
        },
        ...headers(brand),
      ],
      ...(['put', 'post', 'patch', 'delete'].includes(method) && {
        requestBody: { description: 'Whatever the provider takes, of any length.', content: anything },
      }),
      responses: {
        ...failed(byStatus(errors)),
        default: {
          description:
            "The provider's own answer, whatever its status. An error of ours takes the provider's form where its " +
            'definition names one.',
          content: anything,
        },
      },
    },
  ]);
  return { '/proxy/{path}': Object.fromEntries(item) };
}

const anything = { '*/*': { schema: {}, example: { properties: { title: 'Customers' } } } };

function headers(brand: Brand) {
  const required = [
    ['Provider-Config-Key', 'ID of the integration.', 'google-sheet'],
    ['Connection-Id', 'ID of the connection.', 'ada-sheets'],
  ] as const;
  const optional = [
    [
      'Base-Url-Override',
      'Another address, whose origin the integration allows.',
      'https://sheets.googleapis.com',
    ],
    ['Retries', 'Further attempts, 0 to 10.', '0'],
    ['Retry-On', 'Statuses from 400 on, separated by commas, that are tried again.', '409'],
    ['Timeouts', 'Seconds for each phase.', 'connect=5, headers=30'],
    ['Decompress', '`true`: an answer that is compressed is decoded on its way.', 'true'],
    ['Quota-Wait', "Seconds, 0 to 60, that the call may wait for the provider's quota.", '10'],
    [brand.bareHeader('Is-Sync'), '`true`: it waits for the quota behind calls of people.', 'true'],
  ] as const;
  const written = (of: readonly (readonly [string, string, string])[], isRequired: boolean) =>
    of.map(([name, description, example]) => ({
      ...{ name, in: 'header', required: isRequired, description },
      ...{ schema: text, example },
    }));
  return [...written(required, true), ...written(optional, false)];
}

const errors: readonly RouteError[] = [
  ...connectionErrors,
  'malformed_request',
  'invalid_headers',
  'invalid_proxy_path',
  'base_url_override_not_allowed',
  'unsupported_provider',
  'address_not_allowed',
  { code: 'address_not_allowed', status: 424 },
  'missing_auth_header',
  'malformed_auth_header',
  'invalid_secret_key_format',
  'unknown_account',
  'invalid_ticket',
  'not_signed_in',
  'cross_site_request',
  'forbidden',
  'proxy_rule_denied',
  'method_not_allowed',
  'request_timeout',
  'ticket_bytes_exceeded',
  { code: 'ticket_bytes_exceeded', status: 502 },
  'connection_needs_reauth',
  'connection_blocked',
  'invalid_credentials',
  'integration_misconfigured',
  'too_many_requests',
  'quota_exhausted',
  'headers_too_large',
  'internal',
  'unsupported_transfer_coding',
  'upstream_unreachable',
  'upstream_unreadable',
  'upstream_unknown_outcome',
  'upstream_timeout',
  'connection_refresh_failed',
  'unavailable',
  'overloaded',
];
