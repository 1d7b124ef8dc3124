import { type Field, fieldsOf, type JsonSchema } from './schema.ts';

/** How a field of an input is asked for. `json` is whatever a simple field cannot hold. */
export type FormField = Field & {
  asked: 'text' | 'number' | 'switch' | 'choice' | 'json';
  choices: string[];
};
/** As typed; absent: nothing was given. */
export type Typed = Record<string, string | boolean>;
type Read = { input: unknown } | { flaws: Record<string, string> };

/** The fields of a form for an input; undefined where it is no object, or has no fields that are known. */
export function formOf(schema: JsonSchema | undefined): FormField[] | undefined {
  const fields = schema && fieldsOf(schema);
  if (fields === undefined || fields.length === 0) return undefined;
  return fields.map((field) => ({ ...field, ...askedOf(field.schema) }));
}

function askedOf({ type, enum: values }: JsonSchema): Pick<FormField, 'asked' | 'choices'> {
  if (Array.isArray(values) && values.every((value) => typeof value === 'string'))
    return { asked: 'choice', choices: values };
  if (type === 'string') return { asked: 'text', choices: [] };
  if (type === 'number' || type === 'integer') return { asked: 'number', choices: [] };
  if (type === 'boolean') return { asked: 'switch', choices: [] };
  return { asked: 'json', choices: [] };
}

/** The form filled with what an input says, as far as the form can hold it. */
export function typedOf(fields: readonly FormField[], input: unknown): Typed {
  const given = typeof input === 'object' && input !== null ? (input as Record<string, unknown>) : {};
  const typed: Typed = {};
  for (const { name, asked } of fields) {
    if (!Object.hasOwn(given, name)) continue;
    const value = given[name];
    if (asked === 'switch') typed[name] = value === true;
    else if (asked === 'json') typed[name] = JSON.stringify(value, null, 2);
    else typed[name] = String(value ?? '');
  }
  return typed;
}

/** The input that a form stands for, or what is wrong with its fields. What is left empty is left out. */
export function inputOf(fields: readonly FormField[], typed: Typed): Read {
  const input: [string, unknown][] = [];
  const flaws: Record<string, string> = {};
  for (const { name, asked, isRequired, schema } of fields) {
    const given = Object.hasOwn(typed, name) ? typed[name] : undefined;
    if (asked === 'switch') {
      if (given !== undefined || isRequired) input.push([name, given === true]);
      continue;
    }
    const text = String(given ?? '');
    if (text.trim() === '' && (asked !== 'text' || given === undefined || !isRequired)) {
      // An empty text is a text: only where one is required it is sent.
      if (isRequired && asked !== 'text') flaws[name] = 'Is required';
      else if (isRequired) input.push([name, '']);
      continue;
    }
    if (asked === 'number') {
      const number = Number(text);
      if (!Number.isFinite(number)) flaws[name] = 'Is no number';
      else if (schema.type === 'integer' && !Number.isInteger(number)) flaws[name] = 'Is no whole number';
      else input.push([name, number]);
    } else if (asked === 'json') {
      const read = readJson(text);
      if ('flaw' in read) flaws[name] = read.flaw;
      else input.push([name, read.value]);
    } else {
      input.push([name, text]);
    }
  }
  // From entries: a field named `__proto__` is a field.
  return Object.keys(flaws).length > 0 ? { flaws } : { input: Object.fromEntries(input) };
}

/** Any JSON; nothing at all is no input. */
export function readJson(text: string): { value: unknown } | { flaw: string } {
  if (text.trim() === '') return { value: undefined };
  try {
    return { value: JSON.parse(text) as unknown };
  } catch (error) {
    return { flaw: `Is no JSON: ${(error as Error).message}` };
  }
}
