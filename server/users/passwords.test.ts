// Slow: each of its tests takes more than a second.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createPasswords } from './passwords.ts';

test('of many concurrent passwords some are hashed, a few at a time, and the other callers get a retry time', async () => {
  const passwords = createPasswords();
  const tries = await Promise.allSettled(Array.from({ length: 24 }, () => passwords.hash('correct horse')));
  const refused = tries.filter((one) => one.status === 'rejected');
  assert.equal(refused.length, 6);
  for (const { reason } of refused) assert.deepEqual([reason.code, reason.retryAfterS], ['unavailable', 5]);
  // The next request is served again.
  assert.match(await passwords.hash('correct horse'), /:/);
});

test('a request has the hash that its own password matched', async () => {
  const passwords = createPasswords();
  const hash = await passwords.hash('correct horse');
  const verify = (password: string) =>
    passwords.request(async () => {
      const isRight = await passwords.verify({ hash, password });
      return [isRight, passwords.verified()];
    });
  const [right, wrong] = await Promise.all([verify('correct horse'), verify('wrong horse')]);
  assert.deepEqual([right, wrong, passwords.verified()], [[true, hash], [false, undefined], undefined]);
});
