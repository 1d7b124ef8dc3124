// biome-ignore-all lint/suspicious/noTemplateCurlyInString: templates are what is tested
/** Whatever a connection fills into its fields, nothing is sent but to the hosts that the definition names. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { readAccount } from '../../server/auth-modes/account.ts';
import { authorizationRequest, refreshToken } from '../../server/auth-modes/oauth2.ts';
import { apiBase } from '../../server/auth-modes/place.ts';
import { revokeToken } from '../../server/auth-modes/revocation.ts';
import type { Fetch } from '../../server/outbound/outbound.ts';
import type { ProviderDefinition } from '../../server/providers/definition.ts';
import { TemplateError, type TemplateValues } from '../../server/providers/template.ts';
import { client, exampleValues, now, oauthProviders, redirectUri } from './walk.ts';

const placeholderPattern = /\$\{(\w+)\.(\w+)\}/g;

/** What every address made from the template must look like, with values that are labels or one encoded segment. */
function shapeOf(template: string, fixed: TemplateValues): RegExp {
  const [, host = '', rest = ''] = /^https:\/\/([^/?]*)(.*)$/s.exec(template) ?? [];
  const quoted = (text: string, value: string) =>
    text
      .split(placeholderPattern)
      .map((part, index, parts) => {
        if (index % 3 === 2) return '';
        if (index % 3 === 0) return RegExp.escape(part);
        const known = fixed[part as keyof TemplateValues]?.[parts[index + 1] ?? ''];
        return known === undefined ? value : RegExp.escape(known);
      })
      .join('');
  const label = '[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?';
  return new RegExp(
    `^https://${quoted(host, `${label}(?:\\.${label})?`)}${quoted(rest, '(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+')}/?(?:\\?.*)?$`,
    'i',
  );
}

const labels = fc.stringMatching(/^[a-z0-9-]{1,12}$/);
const hostile = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.string(),
  fc.webAuthority(),
  fc.domain(),
  fc.webUrl(),
  fc
    .tuple(
      labels,
      fc.constantFrom(
        '/',
        '\\',
        '@',
        '#',
        '?',
        ':',
        '.',
        '..',
        '%2f',
        '%2e',
        '\u0000',
        '\n',
        '。',
        '／',
        ' ',
        '${x}',
      ),
      fc.domain(),
    )
    .map((parts) => parts.join('')),
  fc
    .tuple(fc.domain(), fc.constantFrom('/', '#', '?', '\\', '@', '%00', '\r\n'))
    .map((parts) => parts.join('')),
  fc.constantFrom(
    '',
    '.',
    '..',
    '-',
    '[::1]',
    '127.0.0.1',
    'localhost',
    '169.254.169.254',
    '0x7f.1',
    'xn--',
    '__proto__',
  ),
  labels,
);

/** Fields that stand in a path, or in a host before a fixed end: only what an operator sets chooses a whole host. */
function openFields(definition: ProviderDefinition) {
  const wholeHost = /^(?:https:\/\/[^/]*)?\$\{integrationConfig\.(\w+)\}(?=[/?]|$)/;
  const templates = addressesOf(definition);
  const isOpen = (name: string) => !templates.some((template) => wholeHost.exec(template)?.[1] === name);
  return {
    connectionConfig: Object.keys(definition.connection_config),
    integrationConfig: Object.keys(definition.integration_config).filter(isOpen),
  };
}

function addressesOf({ authorization, token, refresh, revocation, userinfo, api }: ProviderDefinition) {
  const all = [authorization?.url, token?.url, refresh.url, revocation?.url, userinfo?.url, api.base_url];
  return all.filter((template) => typeof template === 'string');
}

/** The address of a connection that leaves out what it may. */
function withoutOptional(template: string, { connection_config: fields }: ProviderDefinition): string {
  return template.replace(/\/\$\{connectionConfig\.(\w+)\}(?=\/|$)/g, (segment, name: string) =>
    fields[name]?.required === false ? '' : segment,
  );
}

const templated = oauthProviders
  .map((definition) => ({ definition, open: openFields(definition) }))
  .filter(({ open }) => open.connectionConfig.length + open.integrationConfig.length > 0);

describe('hostile values in a connection', () => {
  test('are tried on all definitions that have fields to fill', () => {
    const names = templated.map(({ definition }) => definition.name);
    for (const name of ['salesforce', 'shopify', 'zendesk', 'mailchimp', 'outlook', 'keycloak'])
      assert.ok(names.includes(name), name);
  });

  test('would be seen where they reach another', () => {
    const shape = shapeOf('https://${connectionConfig.shop}.example.com/t/${connectionConfig.t}/x', {});
    assert.ok(shape.test('https://acme.example.com/t/a%2Fb/x'));
    for (const url of [
      'https://evil.com/t/a/x',
      'https://evil.com/.example.com/t/a/x',
      'https://acme.example.com.evil.com/t/a/x',
      'https://acme.example.com:81/t/a/x',
      'https://acme.example.com/t/a/b/x',
      'https://a@acme.example.com/t/a/x',
      'http://acme.example.com/t/a/x',
    ])
      assert.ok(!shape.test(url), url);
  });

  for (const { definition, open } of templated) {
    test(`of ${definition.name} reach no host but its own`, async () => {
      const examples = exampleValues(definition);
      const fixed: TemplateValues = {
        connectionConfig: {},
        integrationConfig: Object.fromEntries(
          Object.entries(examples.integrationConfig ?? {}).filter(
            ([name]) => !open.integrationConfig.includes(name),
          ),
        ),
      };
      const shapes = addressesOf(definition)
        .flatMap((template) => [template, withoutOptional(template, definition)])
        .map((template) => shapeOf(template, fixed));
      const filled = (names: string[]) =>
        fc.record(Object.fromEntries(names.map((name) => [name, hostile])), { requiredKeys: [] });
      let sent = 0;
      const property = fc.asyncProperty(
        filled(open.connectionConfig),
        filled(open.integrationConfig),
        async (connectionConfig, integrationConfig) => {
          const reached: string[] = [];
          const fetch: Fetch = async (url) => {
            reached.push(url);
            throw new Error('the line is dead');
          };
          const values: TemplateValues = {
            connectionConfig: connectionConfig as Record<string, string>,
            integrationConfig: {
              ...fixed.integrationConfig,
              ...(integrationConfig as Record<string, string>),
            },
          };
          const context = { definition, values, client, now, fetch };
          const tokens = { accessToken: 'a' };
          const credentials = { type: 'OAUTH2', access_token: 'a', raw: {} } as const;
          const ways = [
            async () => reached.push((await authorizationRequest({ ...context, redirectUri })).url),
            () => refreshToken({ ...context, refreshToken: 'r' }),
            () => revokeToken({ ...context, token: 't' }),
            () => readAccount({ ...context, tokens }),
            async () => reached.push(apiBase({ definition, credentials, values })),
          ];
          for (const way of ways) {
            try {
              await way();
            } catch (error) {
              assert.ok(error instanceof TemplateError, String(error));
            }
          }
          sent += reached.length;
          for (const url of reached) {
            const { href } = new URL(url);
            assert.ok(
              shapes.some((shape) => shape.test(href)),
              `${href} for ${JSON.stringify(values)}`,
            );
          }
        },
      );
      await fc.assert(property, { numRuns: 150 });
      assert.ok(sent > 0, 'nothing was sent at all');
    });
  }
});
