import { type Field, fieldsOf, type JsonSchema } from './schema.ts';

/** The input control of a field. `json` is for values that a simple control cannot hold. */
export type FormField = Field & {
  control: 'text' | 'number' | 'switch' | 'choice' | 'json';
  choices: string[];
};
/** The entered values; an absent field has no value. */
export type Typed = Record<string, string | boolean>;
type Read = { input: unknown } | { flaws: Record<string, string> };

/** The fields of a form for an input; undefined if the schema is not an object with known fields. */
export function formOf(schema: JsonSchema | undefined): FormField[] | undefined {
  const fields = schema && fieldsOf(schema);
  if (fields === undefined || fields.length === 0) return undefined;
  return fields.map((field) => ({ ...field, ...controlOf(field.schema) }));
}

function controlOf({ type, enum: values }: JsonSchema): Pick<FormField, 'control' | 'choices'> {
  if (Array.isArray(values) && values.every((value) => typeof value === 'string'))
    return { control: 'choice', choices: values };
  if (type === 'string') return { control: 'text', choices: [] };
  if (type === 'number' || type === 'integer') return { control: 'number', choices: [] };
  if (type === 'boolean') return { control: 'switch', choices: [] };
  return { control: 'json', choices: [] };
}

/** The form with the values of an input, as far as it can hold them. */
export function typedOf(fields: readonly FormField[], input: unknown): Typed {
  const given = typeof input === 'object' && input !== null ? (input as Record<string, unknown>) : {};
  const typed: Typed = {};
  for (const { name, control } of fields) {
    if (!Object.hasOwn(given, name)) continue;
    const value = given[name];
    if (control === 'switch') typed[name] = value === true;
    else if (control === 'json') typed[name] = JSON.stringify(value, null, 2);
    else typed[name] = String(value ?? '');
  }
  return typed;
}

/** The input of a form, or the errors of its fields. Empty fields are omitted. */
export function inputOf(fields: readonly FormField[], typed: Typed): Read {
  const input: [string, unknown][] = [];
  const flaws: Record<string, string> = {};
  for (const { name, control, isRequired, schema } of fields) {
    const given = Object.hasOwn(typed, name) ? typed[name] : undefined;
    if (control === 'switch') {
      if (given !== undefined || isRequired) input.push([name, given === true]);
      continue;
    }
    const text = String(given ?? '');
    if (text.trim() === '' && (control !== 'text' || given === undefined || !isRequired)) {
      // An empty text is a value: it is sent only if the field is required.
      if (isRequired && control !== 'text') flaws[name] = 'Required';
      else if (isRequired) input.push([name, '']);
      continue;
    }
    if (control === 'number') {
      const number = Number(text);
      if (!Number.isFinite(number)) flaws[name] = 'Not a number';
      else if (schema.type === 'integer' && !Number.isInteger(number)) flaws[name] = 'Not an integer';
      else input.push([name, number]);
    } else if (control === 'json') {
      const read = readJson(text);
      if ('flaw' in read) flaws[name] = read.flaw;
      else input.push([name, read.value]);
    } else {
      input.push([name, text]);
    }
  }
  // `fromEntries` keeps a field named `__proto__`.
  return Object.keys(flaws).length > 0 ? { flaws } : { input: Object.fromEntries(input) };
}

/** Any JSON; an empty text is no input. */
export function readJson(text: string): { value: unknown } | { flaw: string } {
  if (text.trim() === '') return { value: undefined };
  try {
    return { value: JSON.parse(text) as unknown };
  } catch (error) {
    return { flaw: `Not valid JSON: ${(error as Error).message}` };
  }
}
