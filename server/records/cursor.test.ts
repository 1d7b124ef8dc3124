import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '../errors.ts';
import { cursorWriter, readCursor, readFollowedCursor } from './cursor.ts';

const dataset = { id: 7, lastSeq: 2 ** 40 };

function refused(cursor: string, of: Parameters<typeof readCursor>[1]): void {
  assert.throws(
    () => readCursor(cursor, of),
    (error) => error instanceof AppError && error.code === 'invalid_cursor' && error.status === 400,
    cursor,
  );
}

test('a cursor leads back to its position, up to the largest', () => {
  const spell = cursorWriter(7);
  for (const seq of [1, 2, 255, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 32 + 1, 2 ** 40]) {
    const cursor = spell(seq);
    assert.match(cursor, /^[A-Za-z0-9_-]{28}$/);
    assert.equal(readCursor(cursor, dataset), seq);
  }
  const max = { id: Number.MAX_SAFE_INTEGER, lastSeq: Number.MAX_SAFE_INTEGER };
  assert.equal(readCursor(cursorWriter(max.id)(max.lastSeq), max), max.lastSeq);
});

test('a cursor of another dataset, of none, or above the last position is refused', () => {
  refused(cursorWriter(8)(5), dataset);
  refused(cursorWriter(7)(5), undefined);
  refused(cursorWriter(7)(11), { id: 7, lastSeq: 10 });
  refused(cursorWriter(7)(0), dataset);
  assert.equal(readCursor(cursorWriter(7)(10), { id: 7, lastSeq: 10 }), 10);
});

test('a position has one spelling: whatever differs from it by one character is refused', () => {
  const good = cursorWriter(7)(123_456);
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/= \n\0';
  for (let at = 0; at < good.length; at += 1) {
    for (const character of alphabet) {
      if (character !== good[at]) refused(good.slice(0, at) + character + good.slice(at + 1), dataset);
    }
    refused(good.slice(0, at), dataset);
  }
});

test('a cursor with something before or after it, padded, or in another alphabet is refused', () => {
  const good = cursorWriter(62)(2 ** 31 + 62);
  assert.ok(/[-_]/.test(good), 'the example shows the difference of the alphabets');
  const known = { id: 62, lastSeq: 2 ** 40 };
  assert.equal(readCursor(good, known), 2 ** 31 + 62);
  for (const cursor of [
    '',
    `${good}=`,
    `${good}A`,
    `${good}AAAA`,
    ` ${good}`,
    `${good}\n`,
    good.replaceAll('-', '+').replaceAll('_', '/'),
    Buffer.from(good, 'base64url').toString('hex'),
    'MjAyNi0xMS0yMVQwMDo1MToyNi45NDI3NDcrMDA6MDB8fGFiYw==',
    'null',
    'ä'.repeat(28),
    'A'.repeat(28),
    'A'.repeat(1000),
  ])
    refused(cursor, known);
});

test('a cursor of a later version is refused, although its check is right', async () => {
  const { crc32 } = await import('node:zlib');
  const bytes = Buffer.from(cursorWriter(7)(5), 'base64url');
  bytes.writeUInt8(2, 0);
  bytes.writeUInt32BE(crc32(bytes.subarray(0, 17)), 17);
  refused(bytes.toString('base64url'), dataset);
});

test('a cursor has the start time of its reader until it passes that time, and has one spelling', () => {
  const dataset = { id: 7, lastSeq: 20, tombstoneFloor: 15 };
  const dated = cursorWriter(7, 12)(5);
  assert.equal(dated.length, 40);
  assert.equal(readCursor(dated, dataset), 5);
  assert.equal(cursorWriter(7, 12)(12), cursorWriter(7)(12));
  assert.throws(() => readFollowedCursor(dated, dataset), { code: 'cursor_expired' });
  assert.deepEqual(readFollowedCursor(cursorWriter(7, 15)(5), dataset), { seq: 5, since: 15 });
  // Beyond what was given out, changed, cut, padded, or dated where that says nothing.
  const bytes = Buffer.from(dated, 'base64url');
  bytes.writeUInt8(1, 25);
  for (const bad of [
    cursorWriter(7, 21)(5),
    bytes.toString('base64url'),
    dated.slice(0, 28),
    `${dated}A`,
    `${dated}=`,
  ]) {
    assert.throws(() => readCursor(bad, dataset), { code: 'invalid_cursor' }, bad);
  }
});
