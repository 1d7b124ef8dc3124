import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import { formOf, inputOf, readJson, typedOf } from './input-form.ts';
import { fieldsOf, sampleOf, typeWords } from './schema.ts';

const model = z.object({
  title: z.string(),
  note: z.string().optional(),
  count: z.int(),
  share: z.number().optional(),
  isOpen: z.boolean(),
  kind: z.enum(['plain', 'bold']),
  rows: z.array(z.object({ id: z.string() })),
  until: z.string().nullable(),
});
const schema = z.toJSONSchema(model, { io: 'input' }) as Record<string, unknown>;
const fields = formOf(schema)!;

test('a form has a control for each field of an input by its kind', () => {
  assert.deepEqual(
    fields.map(({ name, control, isRequired }) => `${name} ${control}${isRequired ? '' : '?'}`),
    [
      'title text',
      'count number',
      'isOpen switch',
      'kind choice',
      'rows json',
      'until json',
      'note text?',
      'share number?',
    ],
  );
  assert.deepEqual(fields.find(({ name }) => name === 'kind')?.choices, ['plain', 'bold']);
  // Without known fields, the input is JSON.
  for (const other of [z.any(), z.string(), z.object({}), z.union([model, z.number()])]) {
    assert.equal(formOf(z.toJSONSchema(other) as Record<string, unknown>), undefined);
  }
  assert.equal(formOf(undefined), undefined);
});

test('what is typed becomes an input that fits, and comes back the same into the form', () => {
  const input = {
    title: 'A',
    count: 2,
    share: 0.5,
    isOpen: true,
    kind: 'bold',
    rows: [{ id: '1' }],
    until: null,
  };
  const typed = typedOf(fields, input);
  assert.equal(typed.count, '2');
  const read = inputOf(fields, typed);
  assert.deepEqual(read, { input });
  assert.deepEqual(model.parse((read as { input: unknown }).input), input);
});

test('what is left out is left out; what is required and missing, or does not read, is named', () => {
  assert.deepEqual(inputOf(fields, { count: '1.5', share: 'half', kind: '', rows: '[{' }), {
    flaws: {
      count: 'Not an integer',
      share: 'Not a number',
      kind: 'Required',
      rows: (readJson('[{') as { flaw: string }).flaw,
      until: 'Required',
    },
  });
  const few = { count: '1', kind: 'plain', rows: '[]', until: 'null' };
  assert.deepEqual(inputOf(fields, few), {
    input: { title: '', count: 1, isOpen: false, kind: 'plain', rows: [], until: null },
  });
});

test('names of fields that objects have of themselves are names like others', () => {
  const odd = formOf({
    type: 'object',
    properties: JSON.parse('{"__proto__": {"type": "string"}, "constructor": {"type": "number"}}') as object,
    required: ['__proto__'],
  })!;
  const read = inputOf(odd, JSON.parse('{"__proto__": "x"}') as Record<string, string>);
  assert.equal(JSON.stringify((read as { input: unknown }).input), '{"__proto__":"x"}');
});

test('a sample has what is required, and fits where an empty value does', () => {
  const sample = sampleOf(schema);
  assert.deepEqual(sample, { title: '', count: 0, isOpen: false, kind: 'plain', rows: [], until: '' });
  assert.ok(model.safeParse(sample).success);
});

test('types are described in words', () => {
  const words = Object.fromEntries(fieldsOf(schema)!.map(({ name, schema: of }) => [name, typeWords(of)]));
  assert.deepEqual(words, {
    title: 'text',
    note: 'text',
    count: 'whole number',
    share: 'number',
    isOpen: 'true or false',
    kind: 'one of "plain", "bold"',
    rows: 'list: object',
    until: 'text or nothing',
  });
});
