import { connectionHeaders, keyVariable, type ServiceCall } from '../call-code.ts';
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

/** The call of a form, without the values of secrets: copied code is pasted into chats and tickets. */
export function callOf(form: Form, place: CallTarget): ServiceCall {
  const { target, headers, ...request } = harmlessRequest(form);
  return {
    ...request,
    url: `${place.baseUrl}/proxy${target}`,
    headers: [...connectionHeaders({ integration: place.integration, id: place.connection }), ...headers],
  };
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

function js(value: unknown, indent?: number): string {
  return JSON.stringify(value, null, indent);
}
