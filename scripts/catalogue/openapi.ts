// biome-ignore-all lint/suspicious/noTemplateCurlyInString: definitions contain templates
/** Definitions from providers' own OpenAPI files: each fact is a field of the file. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { z } from 'zod';
import type { Imported, Selection } from './selection.ts';

const flow = z.looseObject({
  authorizationUrl: z.string().optional(),
  tokenUrl: z.string().optional(),
  scopes: z.record(z.string(), z.string().nullable()).default({}),
});
const scheme = z.discriminatedUnion('type', [
  z.looseObject({ type: z.literal('apiKey'), in: z.string(), name: z.string() }),
  z.looseObject({ type: z.literal('http'), scheme: z.string() }),
  z.looseObject({ type: z.literal('oauth2'), flows: z.record(z.string(), flow) }),
  z.looseObject({ type: z.literal('openIdConnect') }),
]);
const openApi = z.looseObject({
  info: z.looseObject({
    'x-origin': z.array(z.looseObject({ url: z.string() })).optional(),
    'x-unofficialSpec': z.boolean().optional(),
  }),
  externalDocs: z.looseObject({ url: z.string() }).optional(),
  servers: z.array(z.looseObject({ url: z.string() })).default([]),
  components: z.looseObject({ securitySchemes: z.record(z.string(), z.unknown()) }),
  paths: z.record(z.string(), z.looseObject({ get: z.unknown().optional() })).default({}),
});

type Entry = Selection['openapi'][string];

/** The definitions of the selected files below `directory`, a copy that was made on the day `on`. */
export function definitionsOfOpenApi({
  directory,
  on,
  selected,
}: {
  directory: string;
  on: string;
  selected: Selection['openapi'];
}): Imported {
  const definitions: Imported['definitions'] = new Map();
  const omitted: Imported['omitted'] = new Map();
  for (const [name, entry] of Object.entries(selected)) {
    const read = definitionOf(entry, {
      document: parse(readFileSync(join(directory, entry.file), 'utf8')),
      on,
    });
    if (typeof read === 'string') omitted.set(name, read);
    else definitions.set(name, read);
  }
  return { definitions, omitted };
}

/** A definition of the catalogue, or why the file does not have all of its facts. */
export function definitionOf(
  {
    scheme: schemeName,
    display_name,
    categories,
    docs,
    server,
    verification,
    repeated_base_path,
    extends: base,
    default_scopes,
  }: Entry,
  { document, on }: { document: unknown; on: string },
): Record<string, unknown> | string {
  const read = openApi.safeParse(document);
  if (!read.success) return `it is no OpenAPI 3 file: ${z.prettifyError(read.error)}`;
  const { info, externalDocs, servers, components, paths } = read.data;
  if (info['x-unofficialSpec'] === true) return 'the file is not the provider’s own';
  const page = info['x-origin']?.at(-1)?.url;
  if (page === undefined || !isHttps(page)) return 'the file does not say where the provider publishes it';
  const url = servers[server]?.url;
  if (url === undefined || !isHttps(url) || url.includes('{')) return `no https address: ${url}`;
  const found = scheme.safeParse(components.securitySchemes[schemeName]);
  if (!found.success) return `no scheme "${schemeName}" of a known type`;
  const auth = base === undefined ? authOf(found.data) : scopesOf(found.data, default_scopes);
  if (typeof auth === 'string') return auth;
  const documentation = docs ?? externalDocs?.url;
  if (documentation === undefined || !isHttps(documentation)) return 'no documentation is named';
  if (verification !== undefined && paths[verification]?.get === undefined)
    return `the file has no GET ${verification}`;
  return {
    ...(base !== undefined && { extends: base }),
    display_name,
    categories,
    docs: documentation,
    level: 'documented',
    source: { on, page },
    ...auth,
    ...(base !== undefined && { sandbox: null }),
    api: { base_url: url.replace(/\/+$/, ''), ...(repeated_base_path && { repeated_base_path }) },
    ...(verification !== undefined && { verification: { path: verification } }),
  };
}

function authOf(found: z.output<typeof scheme>): Record<string, unknown> | string {
  if (found.type === 'apiKey') {
    // A key in Authorization usually has a word before it, for which the format has no field.
    if (found.name.toLowerCase() === 'authorization') return 'the file does not say how the key is written';
    if (found.in !== 'header' && found.in !== 'query') return `a key in a ${found.in} is not supported`;
    return apiKey({ in: found.in, name: found.name, value: '${credentials.apiKey}' });
  }
  if (found.type === 'http') {
    const kind = found.scheme.toLowerCase();
    if (kind === 'basic') return { auth_mode: 'BASIC' };
    if (kind === 'bearer')
      return apiKey({ in: 'header', name: 'Authorization', value: 'Bearer ${credentials.apiKey}' });
    return `the scheme ${kind} is not supported`;
  }
  if (found.type === 'openIdConnect') return 'OpenID Connect says nothing about an API';
  return oauth(found.flows);
}

function apiKey(placement: Record<string, string>) {
  return { auth_mode: 'API_KEY', placement: [placement] };
}

function oauth(flows: Record<string, z.output<typeof flow>>): Record<string, unknown> | string {
  const { authorizationCode: code, clientCredentials: client } = flows;
  const chosen = code ?? client;
  if (chosen === undefined) return 'the flow is not supported';
  const { authorizationUrl, tokenUrl, scopes } = chosen;
  const addresses = code ? [authorizationUrl, tokenUrl] : [tokenUrl];
  if (!addresses.every((url) => url !== undefined && isHttps(url) && !url.includes('{')))
    return 'the addresses of the flow are incomplete';
  return {
    auth_mode: code ? 'OAUTH2' : 'OAUTH2_CC',
    // A provider that does not know PKCE may refuse its parameters; the file has no field for it.
    ...(code && { authorization: { url: authorizationUrl, pkce: 'none' } }),
    token: { url: tokenUrl },
    ...(Object.keys(scopes).length > 0 && { scopes: { catalogue: catalogueOf(scopes) } }),
  };
}

function scopesOf(
  found: z.output<typeof scheme>,
  wanted: readonly string[] = [],
): Record<string, unknown> | string {
  const scopes = found.type === 'oauth2' ? found.flows.authorizationCode?.scopes : undefined;
  if (scopes === undefined) return 'the file has no scopes';
  const unknown = wanted.find((name) => scopes[name] === undefined);
  if (unknown !== undefined) return `the file has no scope "${unknown}"`;
  return { scopes: { default: ['openid', 'email', ...wanted], catalogue: catalogueOf(scopes) } };
}

function catalogueOf(scopes: Readonly<Record<string, string | null>>) {
  const valid = Object.entries(scopes).filter(([name]) => /^[\x21\x23-\x5b\x5d-\x7e]+$/.test(name));
  return Object.fromEntries(valid.map(scopeOf));
}

function scopeOf([name, text]: [string, string | null]): [
  string,
  { sensitivity: string; description: string },
] {
  // The directory fills a missing description with a note of its own.
  const own = (text ?? '').replace('*Originally missing*', '');
  const sentence = own.trim().replace(/\s+/g, ' ') || name;
  const description = /[.!?]$/.test(sentence) ? sentence : `${sentence}.`;
  return [name, { sensitivity: 'sensitive', description }];
}

function isHttps(url: string): boolean {
  return URL.parse(url)?.protocol === 'https:';
}
