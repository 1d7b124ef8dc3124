/** Reads JSON Schemas in the form of zod, for tables and forms. Pure. */
export type JsonSchema = Record<string, unknown>;
export type Field = { name: string; schema: JsonSchema; isRequired: boolean };

/** The fields of an object, required fields first; undefined for other schemas. */
export function fieldsOf(schema: JsonSchema): Field[] | undefined {
  const { properties, required, type } = schema;
  if (type !== 'object') return undefined;
  if (!isSchema(properties)) return [];
  const names = Array.isArray(required) ? required : [];
  const fields = Object.entries(properties).map(([name, of]) => ({
    name,
    schema: isSchema(of) ? of : {},
    isRequired: names.includes(name),
  }));
  // The database does not keep the order of fields.
  return [
    ...fields.filter(({ isRequired }) => isRequired),
    ...fields.filter(({ isRequired }) => !isRequired),
  ];
}

/** "text", "list of whole numbers", "text or nothing", "one of a, b". */
export function typeWords(schema: JsonSchema): string {
  const { type, enum: values, anyOf, oneOf, items, format } = schema;
  if ('const' in schema) return JSON.stringify(schema.const);
  if (Array.isArray(values)) return `one of ${values.map((value) => JSON.stringify(value)).join(', ')}`;
  const alternatives = Array.isArray(anyOf) ? anyOf : Array.isArray(oneOf) ? oneOf : undefined;
  if (alternatives !== undefined) {
    return alternatives.map((one) => (isSchema(one) ? typeWords(one) : 'anything')).join(' or ');
  }
  if (Array.isArray(type)) return type.map((one) => typeWords({ ...schema, type: one })).join(' or ');
  switch (type) {
    case 'string':
      return typeof format === 'string' ? `text (${format})` : 'text';
    case 'number':
      return 'number';
    case 'integer':
      return 'whole number';
    case 'boolean':
      return 'true or false';
    case 'null':
      return 'nothing';
    case 'array':
      return isSchema(items) && Object.keys(items).length > 0 ? `list: ${typeWords(items)}` : 'list';
    case 'object':
      return 'object';
    default:
      return 'anything';
  }
}

/** A valid value as a start for editing: the required fields, with examples and defaults if there are any. */
export function sampleOf(schema: JsonSchema, depth = 0): unknown {
  const { type, enum: values, anyOf, examples, items } = schema;
  if ('default' in schema) return schema.default;
  if ('const' in schema) return schema.const;
  if (Array.isArray(examples) && examples.length > 0) return examples[0];
  if (Array.isArray(values)) return values[0];
  if (Array.isArray(anyOf) && isSchema(anyOf[0])) return sampleOf(anyOf[0], depth);
  switch (Array.isArray(type) ? type[0] : type) {
    case 'string':
      return '';
    case 'number':
    case 'integer':
      return typeof schema.minimum === 'number' && schema.minimum > 0 ? schema.minimum : 0;
    case 'boolean':
      return false;
    case 'array':
      return depth < 4 && isSchema(items) && Number(schema.minItems ?? 0) > 0
        ? [sampleOf(items, depth + 1)]
        : [];
    case 'object':
      return depth < 4
        ? Object.fromEntries(
            (fieldsOf(schema) ?? [])
              .filter(({ isRequired }) => isRequired)
              .map(({ name, schema: of }) => [name, sampleOf(of, depth + 1)]),
          )
        : {};
    default:
      return null;
  }
}

function isSchema(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
