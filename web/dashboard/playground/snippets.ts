import type { SuggestedApi } from './calls.ts';
import {
  type Form,
  harmlessBody,
  isSecret,
  type Pair,
  placeholdersIn,
  requestOf,
  suggestionOf,
  withoutSecrets,
} from './request.ts';

export type CallTarget = { baseUrl: string; integration: string; connection: string };

/** The environment variable of the secret key, which is never in copied code. */
const keyVariable = 'TRELLIS_KEY';

/** For a POSIX shell, with the key in an environment variable. */
export function curlOf(form: Form, place: CallTarget): string {
  const { method, target, headers, body } = harmlessRequest(form);
  const lines = [
    // Without -g, curl expands {} and [] in an address.
    `curl -g${method === 'HEAD' ? ' -I' : method === 'GET' ? '' : ` -X ${method}`} ${quoted(`${place.baseUrl}/proxy${target}`)}`,
    `-H "Authorization: Bearer $${keyVariable}"`,
    ...headersOf(place, headers).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`),
    ...(body === undefined ? [] : [`--data-raw ${quoted(body)}`]),
  ];
  return lines.join(' \\\n  ');
}

/** For Node and other servers: a key must not be in a browser. */
export function fetchOf(form: Form, place: CallTarget): string {
  const { method, target, headers, body } = harmlessRequest(form);
  const parts = [
    ...(method === 'GET' ? [] : [`  method: ${js(method)},`]),
    '  headers: {',
    `    Authorization: \`Bearer \${process.env.${keyVariable}}\`,`,
    ...headersOf(place, headers).map(([name, value]) => `    ${js(name)}: ${js(value)},`),
    '  },',
    ...(body === undefined ? [] : [`  body: ${bodyCode(body, headers)},`]),
  ];
  return [
    `const response = await fetch(${js(`${place.baseUrl}/proxy${target}`)}, {`,
    ...parts,
    '});',
    'console.log(response.status, await response.text());',
  ].join('\n');
}

/** With the provider's Node client; undefined if the call is not a suggested one. */
export function clientOf(form: Form, place: CallTarget, api: SuggestedApi | null): string | undefined {
  const call = suggestionOf(form, api);
  if (api?.client === undefined || call?.client === undefined) return undefined;
  const { package: name, make, version, name: variable } = api.client;
  const connection = js({ 'Connection-Id': place.connection, 'Integration-Id': place.integration });
  const { body } = harmlessRequest(form);
  const given = {
    ...Object.fromEntries(placeholdersIn(form.path).map((field) => [field, form.fields[field] ?? ''])),
    ...parametersOf(form.query.map(harmless)),
    ...(body !== undefined && { requestBody: JSON.parse(body) as unknown }),
  };
  return [
    `import { auth, ${make} as api } from '${name}';`,
    '',
    'const oauth = new auth.OAuth2();',
    `oauth.setCredentials({ access_token: process.env.${keyVariable} });`,
    `const ${variable} = api({ version: '${version}', auth: oauth, headers: ${connection} });`,
    `const { data } = await ${variable}.${call.client}(`,
    `  ${js(given, 2).replaceAll('\n', '\n  ')},`,
    `  { rootUrl: ${js(`${place.baseUrl}/proxy/`)} },`,
    ');',
    'console.log(data);',
  ].join('\n');
}

function parametersOf(query: Pair[]): Record<string, string | string[]> {
  const given: Record<string, string | string[]> = {};
  for (const { name, value } of query) {
    if (name === '' || value === '') continue;
    const former = given[name];
    given[name] = former === undefined ? value : [former, value].flat();
  }
  return given;
}

/** Copied code is pasted into chats and tickets, so secret values are replaced. */
function harmlessRequest(form: Form) {
  return requestOf({
    ...form,
    path: withoutSecrets(form.path),
    query: form.query.map(harmless),
    headers: form.headers.map(harmless),
    body: harmlessBody(form.body, 'SECRET') ?? form.body,
  });
}

function harmless({ name, value }: Pair): Pair {
  return { name, value: value !== '' && isSecret(name) ? 'SECRET' : value };
}

function headersOf(place: CallTarget, headers: [string, string][]): [string, string][] {
  return [['Integration-Id', place.integration], ['Connection-Id', place.connection], ...headers];
}

/** One argument of a shell, whatever it contains. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function js(value: unknown, indent?: number): string {
  return JSON.stringify(value, null, indent);
}

function bodyCode(body: string, headers: [string, string][]): string {
  const isJson = headers.some(([name, value]) => /^content-type$/i.test(name) && /\bjson\b/i.test(value));
  if (!isJson) return js(body);
  return `JSON.stringify(${js(JSON.parse(body), 2).replaceAll('\n', '\n  ')})`;
}
