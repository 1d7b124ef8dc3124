import assert from 'node:assert/strict';
import { test } from 'node:test';
import { allowedBy } from './fields.ts';

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
