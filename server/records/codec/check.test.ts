import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countOf, RecordPacker } from './check.ts';

test('of two records with one ID the last is kept at its position, wherever the first was', () => {
  const large = 'é'.repeat(2_000_000);
  const packer = new RecordPacker(6 * large.length);
  for (const id of ['a', 'b', 'c', 'a', 'd', 'b']) packer.add({ id, text: `${id}${large}`, canonical: id });
  const records = packer.pack();
  assert.equal(countOf(records), 4);
  assert.deepEqual(records.duplicates, ['a', 'b']);
  assert.ok(records.batches.length > 1);
  assert.deepEqual(
    records.batches.flatMap(({ ids }) => ids),
    ['c', 'a', 'd', 'b'],
  );
});

test('a payload and its canonical form come out as they were put in', () => {
  const texts = ['', 'x', 'é€😀', 'y'.repeat(5_000_000), 'z'];
  const packer = new RecordPacker(100);
  for (const [index, text] of texts.entries()) {
    packer.add({ id: String(index), text, canonical: `canonical ${text}` });
  }
  const found = packer.pack().batches.flatMap(({ bytes, ids, offsets }) =>
    ids.map((id, index) => {
      const [start, textEnd, end] = offsets.subarray(index * 3, index * 3 + 3);
      const part = (from = 0, to = 0) => Buffer.from(bytes.subarray(from, to)).toString();
      return [id, part(start, textEnd), part(textEnd, end)];
    }),
  );
  assert.deepEqual(
    found,
    texts.map((text, index) => [String(index), text, `canonical ${text}`]),
  );
});
