import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FormField } from './definition.ts';
import { allowedBy, readFields } from './fields.ts';

test('a message describes in words which values a pattern allows', () => {
  for (const [pattern, example, words] of [
    ['us|eu', 'us', 'must be us or eu'],
    ['com|in|com\\.au', undefined, 'must be com, in, or com.au'],
    ['[A-Za-z0-9-]+', 'acme', 'must contain only letters, digits, and -, as in acme'],
    ['[0-9]{1,20}', undefined, 'must contain only digits, 1 to 20 in all'],
    ['[A-Z0-9]{10}', undefined, 'must contain only capital letters and digits, 10 in all'],
    ['[a-z]+', undefined, 'must contain only small letters'],
    [
      '[\\w+=,.@:/-]{2,1224}',
      undefined,
      'must contain only letters, digits, _, +, =, ,, ., @, :, /, and -, 2 to 1224 in all',
    ],
    ['[^:]+', 'api-user', 'must have the form of api-user'],
    ['[a-f]+', undefined, 'must match [a-f]+'],
    ['[A-Za-z0-9-]+(\\.[A-Za-z0-9-]+)+', 'acme.example.com', 'must have the form of acme.example.com'],
  ] as const)
    assert.equal(allowedBy(pattern, { example }), words);
});

test('a refused value has a reason that needs no English, if there is one', () => {
  const field = { title: 'A', description: '', required: true, secret: false, max_length: 30 };
  const reasonOf = (more: Partial<FormField>, value: string) => {
    const read = readFields({ a: { ...field, ...more } }, { a: value });
    assert.ok(!read.ok);
    return read.issues[0]?.reason;
  };
  for (const [more, value, reason] of [
    [{}, 'x'.repeat(31), { code: 'too_long', limit: '30' }],
    [{}, 'a\tb', { code: 'control_characters' }],
    [{ pattern: 'us|eu\\.api' }, 'de', { code: 'one_of', limit: 'us, eu.api' }],
    [{ pattern: '[A-Za-z0-9-]+' }, 'a.b', { code: 'characters', limit: 'A–Z a–z 0–9 -' }],
    [{ pattern: '[a-z0-9]{8,12}' }, 'A2345678', { code: 'characters', limit: 'a–z 0–9' }],
    [{ pattern: '[A-Z0-9]{8,12}' }, 'A23', { code: 'length', limit: '8–12' }],
    [{ pattern: '[\\w.]{3}' }, 'ab', { code: 'length', limit: '3' }],
    [{ pattern: '[a-z]{2}\\d', example: 'eu1' }, 'eu', { code: 'form' }],
    [{ pattern: '[a-z]{2}\\d' }, 'eu', undefined],
    [{ format: 'uri' }, 'acme', { code: 'address' }],
    [{ format: 'uuid', example: '464f7988-0000-4000-8000-781ee556ab7a' }, 'a', { code: 'form' }],
    [{ format: 'email' }, 'a', undefined],
    [{ format: 'header_name' }, 'Cookie', undefined],
  ] as const)
    assert.deepEqual(reasonOf(more, value), reason, `${JSON.stringify(more)} ${value}`);
});
