// biome-ignore-all lint/suspicious/noTemplateCurlyInString: definitions contain templates
/**
 * Definitions from the sources of OpenConnector (Apache-2.0). Each of its providers is a folder with `definition.ts`, which
 * names it, and `executors.ts`, whose call of `defineProviderProxy` has the base address and the place of the key. Only
 * literals are read, here or in a file of the same folder; no code is run.
 */
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type Expression, type Node, type ObjectExpression, type Program, parse } from 'acorn';
import { transformSync } from 'esbuild';
import type { Imported, Selection } from './selection.ts';

const repository = 'https://github.com/oomol-lab/open-connector/blob/main/src/providers';
/** Set by the client of each call, and nothing that a definition needs. */
const usualHeaders: ReadonlySet<string> = new Set(['accept', 'content-type', 'user-agent']);

type Entry = Selection['open_connector'][string];

/** The definitions of the selected folders of a clone that was made on the day `on`. */
export function definitionsOfOpenConnector({
  directory,
  on,
  selected,
}: {
  directory: string;
  on: string;
  selected: Selection['open_connector'];
}): Imported {
  const definitions: Imported['definitions'] = new Map();
  const omitted: Imported['omitted'] = new Map();
  for (const [name, entry] of Object.entries(selected)) {
    const read = definitionOf(entry, { providers: join(directory, 'src/providers'), on });
    if (typeof read === 'string') omitted.set(name, read);
    else definitions.set(name, read);
  }
  return { definitions, omitted };
}

/** A definition of the catalogue, or why the folder does not have all of its facts as literals. */
export function definitionOf(
  { folder, categories }: Entry,
  { providers, on }: { providers: string; on: string },
): Record<string, unknown> | string {
  const named = readModule(join(providers, folder, 'definition.ts'));
  const run = readModule(join(providers, folder, 'executors.ts'));
  if (named === undefined || run === undefined) return 'there is no such folder';
  const { displayName, homepageUrl, auth } = literalOf(named.constants.get('provider'), named) as Partial<{
    displayName: string;
    homepageUrl: string;
    auth: Partial<{ type: string; description: string; extraFields: { required?: boolean }[] }>[];
  }>;
  const key = auth?.find(({ type }) => type === 'api_key');
  if (displayName === undefined || key === undefined) return 'it takes no API key';
  const { extraFields = [] } = key;
  if ('extraFields' in key && key.extraFields === undefined) return 'its fields are not declared';
  if (extraFields.some(({ required }) => required !== false)) return 'it takes more than a key';
  const proxy = run.constants.get('proxy');
  const [argument] =
    proxy?.type === 'CallExpression' &&
    proxy.callee.type === 'Identifier' &&
    proxy.callee.name === 'defineProviderProxy'
      ? proxy.arguments
      : [];
  if (argument?.type !== 'ObjectExpression') return 'its proxy is not declared';
  const base = literalOf(propertyOf(argument, 'baseUrl'), run);
  if (typeof base !== 'string' || !/^https:\/\/[^${}]+$/.test(base)) return 'its address is not fixed';
  const placement = placementOf(literalOf(propertyOf(argument, 'auth'), run) as ProxyAuth | undefined);
  if (placement === undefined) return 'the place of the key is not declared';
  const headers = headersOf(propertyOf(argument, 'customizeRequest'), run);
  if (headers === undefined) return 'its requests are changed by code';
  const page =
    /https:\/\/[^\s"'<>)]+/.exec(key.description ?? '')?.[0].replace(/[.,;:]+$/, '') ?? homepageUrl;
  if (page === undefined || !page.startsWith('https://')) return 'no documentation is named';
  return {
    display_name: displayName,
    categories,
    docs: page,
    level: 'community',
    source: { on, page: `${repository}/${folder}/executors.ts` },
    auth_mode: 'API_KEY',
    placement: [placement],
    api: { base_url: base.replace(/\/+$/, ''), ...(Object.keys(headers).length > 0 && { headers }) },
  };
}

type ProxyAuth = Partial<{ type: string; name: string; prefix: string; suffix: string }>;

function placementOf(auth: ProxyAuth | undefined): Record<string, string> | undefined {
  const key = '${credentials.apiKey}';
  if (auth?.type === 'api_key_header' && auth.name) return { in: 'header', name: auth.name, value: key };
  if (auth?.type === 'api_key_query' && auth.name) return { in: 'query', name: auth.name, value: key };
  if (auth?.type === 'bearer') return { in: 'header', name: 'Authorization', value: `Bearer ${key}` };
  if (auth?.type !== 'api_key_authorization' || auth.prefix === undefined) return undefined;
  return { in: 'header', name: 'Authorization', value: `${auth.prefix}${key}${auth.suffix ?? ''}` };
}

type Module = { path: string; constants: Map<string, Expression>; imports: Map<string, string> };

/** The constants of a module at its top level, and the file from which each other name is imported. */
function readModule(path: string): Module | undefined {
  if (!existsSync(path)) return undefined;
  const { code } = transformSync(readFileSync(path, 'utf8'), { loader: 'ts', format: 'esm' });
  const program: Program = parse(code, { ecmaVersion: 'latest', sourceType: 'module' });
  const constants = new Map<string, Expression>();
  const imports = new Map<string, string>();
  for (const statement of program.body) {
    const declared = statement.type === 'ExportNamedDeclaration' ? statement.declaration : statement;
    if (declared?.type === 'VariableDeclaration') {
      for (const { id, init } of declared.declarations)
        if (id.type === 'Identifier' && init) constants.set(id.name, init);
    } else if (statement.type === 'ImportDeclaration' && typeof statement.source.value === 'string') {
      for (const { local } of statement.specifiers) imports.set(local.name, statement.source.value);
    }
  }
  return { path, constants, imports };
}

/** The value of an expression of literals and constants; undefined, also inside, for anything else. */
function literalOf(node: Node | undefined, module: Module): unknown {
  const expression = node as Expression | undefined;
  switch (expression?.type) {
    case 'Literal':
      return expression.value;
    case 'ArrayExpression':
      return expression.elements.map((element) => (element === null ? null : literalOf(element, module)));
    case 'ObjectExpression':
      return Object.fromEntries(
        expression.properties.flatMap((property) =>
          property.type === 'Property' && property.key.type === 'Identifier' && !property.computed
            ? [[property.key.name, literalOf(property.value, module)]]
            : [],
        ),
      );
    case 'TemplateLiteral': {
      const parts = expression.expressions.map((part) => literalOf(part, module));
      if (!parts.every((part) => typeof part === 'string')) return undefined;
      return expression.quasis.map(({ value }, index) => `${value.cooked}${parts[index] ?? ''}`).join('');
    }
    case 'Identifier':
      return valueOfName(expression.name, module);
    default:
      return undefined;
  }
}

function valueOfName(name: string, module: Module): unknown {
  const here = module.constants.get(name);
  if (here !== undefined) return literalOf(here, module);
  const from = module.imports.get(name);
  if (from === undefined || !/^\.\/[a-z0-9-]+\.ts$/.test(from)) return undefined;
  const other = readModule(join(dirname(module.path), from));
  return other && literalOf(other.constants.get(name), other);
}

function propertyOf(object: ObjectExpression, name: string): Node | undefined {
  for (const property of object.properties) {
    if (property.type === 'Property' && property.key.type === 'Identifier' && property.key.name === name)
      return property.value;
  }
  return undefined;
}

/** The headers that a request gets besides the usual ones; undefined if code does more than set fixed headers. */
function headersOf(customize: Node | undefined, module: Module): Record<string, string> | undefined {
  if (customize === undefined) return {};
  const of = customize as Expression;
  if (of.type !== 'FunctionExpression' && of.type !== 'ArrowFunctionExpression') return undefined;
  const headers: Record<string, string> = {};
  const pending: Node[] = of.body.type === 'BlockStatement' ? [...of.body.body] : [of.body];
  for (const node of pending) {
    const statement = node as Node & Record<string, unknown>;
    if (statement.type === 'IfStatement' && statement.alternate === null) {
      const body = statement.consequent as Node & { body?: Node[] };
      pending.push(...(body.type === 'BlockStatement' ? (body.body ?? []) : [body]));
      continue;
    }
    const call = (statement.type === 'ExpressionStatement' ? statement.expression : statement) as Expression;
    if (call.type !== 'CallExpression' || call.callee.type !== 'MemberExpression') return undefined;
    const { object, property } = call.callee;
    if (object.type !== 'Identifier' || object.name !== 'headers') return undefined;
    if (property.type !== 'Identifier' || property.name !== 'set') return undefined;
    const [name, value] = call.arguments.map((argument) => literalOf(argument, module));
    if (typeof name !== 'string') return undefined;
    if (usualHeaders.has(name.toLowerCase())) continue;
    if (typeof value !== 'string') return undefined;
    headers[name] = value;
  }
  return headers;
}
