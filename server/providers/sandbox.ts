import type { ProviderDefinition } from './definition.ts';

/** The definition has no `sandbox` section, so it cannot be used with test credentials. */
export class NoSandboxError extends Error {
  constructor(name: string) {
    super(`the provider "${name}" has no sandbox`);
    this.name = 'NoSandboxError';
  }
}

/**
 * The definition with each address moved to the sandbox, at the paths of its `sandbox` section. Sections without a
 * path there are removed, so that a test integration never reaches the real provider. The issuer is the sandbox's own
 * address. `sandboxUrl` is an origin, with or without a trailing slash. Throws NoSandboxError.
 */
export function withSandbox(definition: ProviderDefinition, sandboxUrl: string): ProviderDefinition {
  const { sandbox } = definition;
  if (sandbox === undefined) throw new NoSandboxError(definition.name);
  const origin = new URL(sandboxUrl).origin;
  const {
    issuer,
    authorization,
    token,
    revocation,
    userinfo,
    refresh,
    security_events: events,
    channels,
    ...others
  } = definition;
  const { url: _refreshUrl, ...refreshAtTokenEndpoint } = refresh;
  const { jwks_url: _jwksUrl, ...issuerFacts } = issuer ?? { url: '', iss_in_callback: 'optional' as const };
  return {
    ...others,
    refresh: refreshAtTokenEndpoint,
    ...(issuer && {
      issuer: {
        ...issuerFacts,
        url: origin,
        ...(sandbox.jwks !== undefined && { jwks_url: origin + sandbox.jwks }),
      },
    }),
    ...(authorization &&
      sandbox.authorization !== undefined && {
        authorization: { ...authorization, url: origin + sandbox.authorization },
      }),
    ...(token && { token: { ...token, url: origin + sandbox.token } }),
    ...(revocation &&
      sandbox.revocation !== undefined && {
        revocation: { ...revocation, url: origin + sandbox.revocation },
      }),
    ...(events &&
      sandbox.jwks !== undefined && {
        security_events: { ...events, issuers: [origin, `${origin}/`], jwks_url: origin + sandbox.jwks },
      }),
    ...(channels && { channels: { ...channels, base_url: origin + sandbox.api } }),
    ...(userinfo &&
      sandbox.userinfo !== undefined && { userinfo: { ...userinfo, url: origin + sandbox.userinfo } }),
    api: {
      ...definition.api,
      base_url: origin + sandbox.api,
      other_base_urls: Object.fromEntries(
        Object.keys(definition.api.other_base_urls).map((url) => [url, origin + sandbox.api]),
      ),
    },
  };
}
