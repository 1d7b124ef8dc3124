import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { InputData, JSONSchemaInput, type LanguageName, type Options, quicktype } from 'quicktype-core';
import type { JsonSchema } from '../server/http/openapi/examples.ts';
import { startRunningService } from '../test/support/service.ts';

/**
 * Writes the types of the API for other languages, by the names of the schemas in the OpenAPI document: `trellis.py` for
 * Python 3.10 and newer, with functions that read and write JSON values, and `trellis.go`.
 *
 * Use: `node scripts/client-types.ts DIRECTORY [ADDRESS]`, which starts a service, or uses the service at ADDRESS.
 */
type Schemas = Readonly<Record<string, JsonSchema>>;

/** The text of each file, by its name. */
export async function clientTypes(schemas: Schemas): Promise<Record<string, string>> {
  const definitions = Object.fromEntries(
    Object.entries(schemas).map(([name, schema]) => [name, plain(flat(schema, schemas))]),
  );
  return {
    'trellis.py': await written(definitions, {
      lang: 'python',
      rendererOptions: { 'python-version': '3.10' },
    }),
    'trellis.go': await written(definitions, {
      lang: 'go',
      rendererOptions: { 'just-types-and-package': true, package: 'trellis', 'omit-empty': true },
    }),
  };
}

async function written<L extends LanguageName>(
  definitions: Schemas,
  options: Partial<Options<L>>,
): Promise<string> {
  const input = new JSONSchemaInput(undefined);
  await input.addSource({
    name: 'Trellis',
    schema: JSON.stringify({ definitions }),
    // Each definition is a type of its own.
    uris: ['#/definitions/'],
  });
  const inputData = new InputData();
  inputData.addInput(input);
  const { lines } = await quicktype({
    ...options,
    inputData,
    // Two schemas with the same fields stay two types.
    fixedTopLevels: true,
    combineClasses: false,
    leadingComments: ['Generated from /openapi.json of Trellis by scripts/client-types.ts.'],
  });
  return lines.join('\n');
}

/** A schema of all parts of `allOf` together: languages without intersections have one type for them. */
function flat(schema: JsonSchema, schemas: Schemas): JsonSchema {
  const { allOf, $ref: _, ...rest } = schema;
  if (allOf === undefined) return schema;
  const parts = allOf.map((part) => flat(schemas[part.$ref?.split('/').at(-1) ?? ''] ?? part, schemas));
  return {
    ...rest,
    type: 'object',
    properties: Object.assign({}, ...parts.map(({ properties }) => properties)),
    required: parts.flatMap(({ required = [] }) => required),
  };
}

/**
 * A schema without the rules that types cannot express. A format such as `date-time` stays text, as on the wire. An object
 * with further fields of any name is a map, since a class would lose them.
 */
function plain(schema: JsonSchema): JsonSchema {
  const { $ref, type, properties, required, items, additionalProperties, anyOf, oneOf, allOf } = schema;
  if ($ref !== undefined) return { $ref: $ref.replace('#/components/schemas/', '#/definitions/') };
  const { description, enum: values, const: only } = schema;
  const isOpen = additionalProperties === true || typeof additionalProperties === 'object';
  const constant = typeof only === 'string' && [only];
  const isMap = isOpen && properties !== undefined;
  return {
    ...(type !== undefined && { type }),
    ...(description !== undefined && { description }),
    ...(values && { enum: values }),
    ...(constant && { enum: constant }),
    ...(items && { items: plain(items) }),
    ...(isMap && { additionalProperties: true }),
    ...(!isMap && {
      ...(properties && {
        properties: Object.fromEntries(Object.entries(properties).map(([name, part]) => [name, plain(part)])),
        additionalProperties: false,
      }),
      ...(required && { required }),
      ...(typeof additionalProperties === 'object' && { additionalProperties: plain(additionalProperties) }),
    }),
    // With properties, it only says which of them are required.
    ...(anyOf && !properties && { anyOf: anyOf.map(plain) }),
    ...(oneOf && { oneOf: oneOf.map(plain) }),
    ...(allOf && { allOf: allOf.map(plain) }),
  };
}

if (import.meta.main) {
  const [directory, address] = process.argv.slice(2);
  if (directory === undefined) throw new Error('Use: node scripts/client-types.ts DIRECTORY [ADDRESS]');
  const service = address === undefined ? await startRunningService() : undefined;
  const response = await fetch(new URL('/openapi.json', address ?? service?.baseUrl));
  const { components } = (await response.json()) as { components: { schemas: Schemas } };
  await mkdir(directory, { recursive: true });
  for (const [name, text] of Object.entries(await clientTypes(components.schemas)))
    await writeFile(join(directory, name), text);
  await service?.stop();
}
