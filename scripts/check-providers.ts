/**
 * Compares the definitions with what the providers publish about themselves: OpenID Connect Discovery 1.0 §3 and RFC 8414.
 * `npm run providers:check` checks those that ship, and needs the network; names limit it to some, `--directory` names
 * another folder. It prints each difference and exits with 1 if there is one. A provider without a document, and a
 * definition whose addresses depend on a customer, are only counted.
 */
import { parseArgs } from 'node:util';
import { authModes } from '../server/auth-modes/modes.ts';
import { limitConcurrency } from '../server/concurrency.ts';
import { loadCatalog, providersDirectory } from '../server/providers/catalog.ts';
import type { ProviderDefinition } from '../server/providers/definition.ts';

/** `field`: the path in the definition. */
export type Difference = { name: string; field: string; ours: string; published: string; document: string };
export type Report = { compared: string[]; without: string[]; differences: Difference[] };
type Metadata = Readonly<Record<string, unknown>>;
type Fetch = (url: string) => Promise<Metadata | undefined>;

/** `fetch` returns the JSON object at an address, or undefined if there is none. */
export async function compareWithPublished(
  definitions: readonly ProviderDefinition[],
  { fetch }: { fetch: Fetch },
): Promise<Report> {
  const report: Report = { compared: [], without: [], differences: [] };
  const limit = limitConcurrency(8);
  const once = new Map<string, Promise<Metadata | undefined>>();
  const read = (url: string) => {
    const known = once.get(url) ?? limit(() => fetch(url));
    once.set(url, known);
    return known;
  };
  await Promise.all(
    definitions.map(async (definition) => {
      const { name } = definition;
      for (const document of documentsOf(definition)) {
        const metadata = await read(document);
        if (metadata === undefined || !isOf(metadata, definition)) continue;
        report.compared.push(name);
        report.differences.push(
          ...differencesOf(definition, metadata).map((one) => ({ ...one, name, document })),
        );
        return;
      }
      report.without.push(name);
    }),
  );
  const byName = (a: { name: string }, b: { name: string }) => a.name.localeCompare(b.name);
  return {
    compared: report.compared.sort(),
    without: report.without.sort(),
    differences: report.differences.sort(byName),
  };
}

/** The addresses at which a provider may publish its metadata; empty if they depend on a customer. */
function documentsOf({ issuer, token }: ProviderDefinition): string[] {
  const at = issuer?.url ?? (token && isFixed(token.url) ? new URL(token.url).origin : undefined);
  if (at === undefined || !isFixed(at)) return [];
  const { origin, pathname } = new URL(at);
  const path = pathname.replace(/\/$/, '');
  return [
    `${origin}${path}/.well-known/openid-configuration`,
    `${origin}/.well-known/oauth-authorization-server${path}`,
  ];
}

/** Without an issuer in the definition, the document of the host may be that of another product. */
function isOf({ token_endpoint: endpoint }: Metadata, { issuer, token }: ProviderDefinition): boolean {
  if (issuer !== undefined) return true;
  const isSame = typeof endpoint === 'string' && URL.canParse(endpoint) && token !== undefined;
  return isSame && new URL(endpoint).origin === new URL(token.url).origin;
}

function differencesOf(
  definition: ProviderDefinition,
  metadata: Metadata,
): Omit<Difference, 'name' | 'document'>[] {
  const { issuer, authorization, token, revocation, userinfo } = definition;
  const addresses: [field: string, ours: string | undefined, member: string][] = [
    ['issuer.url', issuer?.url, 'issuer'],
    ['issuer.jwks_url', issuer?.jwks_url, 'jwks_uri'],
    ['authorization.url', authorization?.url, 'authorization_endpoint'],
    ['token.url', token?.url, 'token_endpoint'],
    ['revocation.url', revocation?.url, 'revocation_endpoint'],
    ['userinfo.url', userinfo?.url, 'userinfo_endpoint'],
  ];
  const found = addresses.flatMap(([field, ours, member]) => {
    const published = metadata[member];
    return ours === undefined || !isFixed(ours) || typeof published !== 'string' || published === ours
      ? []
      : [{ field, ours, published }];
  });
  const lists: [field: string, ours: string | undefined, member: string][] = [
    ['token.auth_method', token?.auth_method, 'token_endpoint_auth_methods_supported'],
    [
      'authorization.pkce',
      authorization?.pkce === 'S256' ? 'S256' : undefined,
      'code_challenge_methods_supported',
    ],
  ];
  for (const [field, ours, member] of lists) {
    const published = metadata[member];
    if (ours !== undefined && Array.isArray(published) && !published.includes(ours))
      found.push({ field, ours, published: published.join(', ') });
  }
  return found;
}

function isFixed(address: string): boolean {
  return !address.includes('${');
}

const timeoutMs = 15_000;

async function fetchMetadata(url: string): Promise<Metadata | undefined> {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(timeoutMs) });
    if (!answer.ok) return undefined;
    const body: unknown = await answer.json();
    return typeof body === 'object' && body !== null && !Array.isArray(body) ? { ...body } : undefined;
  } catch {
    // No network, a host that does not answer, or a page that is not JSON.
    return undefined;
  }
}

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { directory: { type: 'string', default: providersDirectory } },
  });
  const catalog = loadCatalog(values.directory, authModes);
  const wanted = positionals.length > 0 ? positionals.map((name) => catalog.get(name)) : catalog.list();
  const withOAuth = wanted.filter(({ token }) => token !== undefined);
  const { compared, without, differences } = await compareWithPublished(withOAuth, { fetch: fetchMetadata });
  for (const { name, field, ours, published, document } of differences)
    console.log(`${name}: ${field} is ${ours}, but ${document} has ${published}`);
  console.log(
    `${compared.length} definitions compared, ${differences.length} differences; ${without.length} providers publish no metadata at a known address.`,
  );
  // Without any document, nothing was checked: the network may be away.
  return differences.length > 0 || compared.length === 0 ? 1 : 0;
}

if (import.meta.main) process.exitCode = await main();
