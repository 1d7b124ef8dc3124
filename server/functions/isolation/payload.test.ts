import assert from 'node:assert/strict';
import { test } from 'node:test';
import { examineJson, maxParsedValues, maxValues } from './json-limits.ts';
import { LargeJson, readLarge, readSmall } from './payload.ts';

const bytesOf = (text: string) => {
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(text)) as Buffer<ArrayBuffer>;
  bytes.write(text);
  return bytes;
};
const list = (item: string, count: number) => bytesOf(`[${Array(count).fill(item).join(',')}]`);

test('values are counted outside of texts, before anything is parsed', () => {
  const cases: [string, number][] = [
    ['1', 0],
    ['"[,{"', 0],
    ['"\\"[,{"', 0],
    ['["\\\\",[],{}]', 5],
    ['{"a":[1,2],"b":{}}', 5],
    ['"not closed [[[', 0],
  ];
  for (const [text, values] of cases) assert.equal(examineJson(Buffer.from(text)).values, values, text);
});

test('JSON with too many values or levels is refused, also if it is not valid JSON', async () => {
  for (const json of [list('[]', maxValues), list('{"a":1}', maxValues), bytesOf(','.repeat(maxValues + 1))])
    assert.deepEqual(await readLarge(json), { fault: 'It has more than 1,000,000 values.' });
  const deep = (levels: number) => bytesOf('['.repeat(levels) + ']'.repeat(levels));
  assert.ok('value' in readSmall(deep(128))!);
  assert.deepEqual(readSmall(deep(129)), { fault: 'It is nested deeper than 128 levels.' });
  assert.deepEqual(readSmall(bytesOf('[1,')), { fault: 'It is not JSON.' });
});

test('JSON is parsed here up to 64 KB, and up to 2 MB where it has few values; larger JSON stays bytes', async () => {
  assert.deepEqual(readSmall(list('1', 1_000)), { value: Array(1_000).fill(1), values: 1_000 });
  assert.equal(readSmall(bytesOf(JSON.stringify('x'.repeat(64 * 1024)))), undefined);
  const isLarge = async (json: Buffer<ArrayBuffer>) => {
    const text = json.toString();
    const read = await readLarge(json);
    assert.ok('value' in read);
    if (!(read.value instanceof LargeJson)) {
      assert.deepEqual(read.value, JSON.parse(text));
      return false;
    }
    assert.equal(read.value.bytes.toString(), text);
    return true;
  };
  assert.equal(await isLarge(bytesOf(JSON.stringify('x'.repeat(2_000_000)))), false);
  assert.equal(await isLarge(bytesOf(JSON.stringify('x'.repeat(2_100_000)))), true);
  assert.equal(await isLarge(list('1', maxParsedValues)), false);
  assert.equal(await isLarge(list('1', maxParsedValues + 1)), true);
});

test('a key `__proto__` is refused however it is spelled, and a text of that name is not', async () => {
  const spellings = [
    '{"__proto__":1}',
    '{"\\u005f_proto__":1}',
    '{"__pr\\u006fto__":1}',
    '[{"a":{"__proto\\u005F_":1}}]',
  ];
  for (const text of spellings) {
    assert.deepEqual(readSmall(bytesOf(text)), { fault: 'It has a key `__proto__`.' }, text);
    const large = bytesOf(`[${text},"${'x'.repeat(2_100_000)}"]`);
    assert.deepEqual(await readLarge(large), { fault: 'It has a key `__proto__`.' }, text);
  }
  assert.deepEqual(readSmall(bytesOf('["__proto__"]')), { value: ['__proto__'], values: 1 });
});

test('a result that stays bytes is JSON for certain', async () => {
  const broken = bytesOf(`["${'x'.repeat(2_100_000)}"`);
  assert.ok('value' in (await readLarge(bytesOf(broken.toString()))));
  assert.deepEqual(await readLarge(broken, { isParsed: true }), { fault: 'It is not JSON.' });
});
