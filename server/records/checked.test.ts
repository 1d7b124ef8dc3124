import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CheckedRecords } from './checked.ts';

test('of two records with one id the last stands, in its place, wherever the first one lies', () => {
  const large = 'é'.repeat(2_000_000);
  const records = new CheckedRecords(6);
  for (const id of ['a', 'b', 'c', 'a', 'd', 'b']) records.add({ id, text: `${id}${large}`, canonical: id });
  assert.equal(records.size, 4);
  assert.deepEqual(records.duplicates, ['a', 'b']);
  const pieces = records.pieces();
  assert.ok(pieces.length > 1);
  assert.deepEqual(
    pieces.flatMap(({ spans }) => spans.map(({ id }) => id)),
    ['c', 'a', 'd', 'b'],
  );
});

test('a payload and its canonical form come out as they were put in', () => {
  const texts = ['', 'x', 'é€😀', 'y'.repeat(5_000_000), 'z'];
  const records = new CheckedRecords(texts.length);
  for (const [index, text] of texts.entries()) {
    records.add({ id: String(index), text, canonical: `canonical ${text}` });
  }
  for (const { bytes, spans } of records.pieces()) {
    for (const { id, start, textEnd, end } of spans) {
      const text = texts[Number(id)];
      assert.equal(Buffer.from(bytes.subarray(start, textEnd)).toString(), text);
      assert.equal(Buffer.from(bytes.subarray(textEnd, end)).toString(), `canonical ${text}`);
    }
  }
});
