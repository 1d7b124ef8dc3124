import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { readItems, readJson } from './json.ts';

type Read = { value: unknown } | { error: string };

const whole = (bytes: Buffer): Read => attempt(() => readJson(bytes));

/** As `whole`, by items where that can be; `isCut` says whether it could. */
function byItems(bytes: Buffer): { read: Read; isCut: boolean } {
  let isCut = false;
  const read = attempt(() => {
    const items: unknown[] = [];
    const rest = readItems(bytes, { name: 'records', max: 1000, onItem: (item) => items.push(item) });
    isCut = rest !== undefined;
    return rest === undefined ? readJson(bytes) : { ...rest, records: items };
  });
  return { read, isCut };
}

function attempt(read: () => unknown): Read {
  try {
    return { value: read() };
  } catch (error) {
    assert.ok(error instanceof SyntaxError, String(error));
    return { error: 'SyntaxError' };
  }
}

function assertSame(text: string | Buffer): void {
  const bytes = Buffer.from(text as string);
  assert.deepEqual(byItems(bytes).read, whole(bytes), bytes.toString('utf8', 0, 300));
}

const good = [
  '{"records":[]}',
  ' {\t"records" : [ \n ] , "model":"M"}\r\n',
  '{"records":[{"id":1},{"id":"2","x":[1,[2,{"a":"]"}]]}],"model":"M"}',
  '{"model":"records","records":[1]}',
  '{"a":{"records":[1,2]},"records":[3,4]}',
  '{"a":["records",[1]],"records":["x,y","[","{","\\"","\\\\","\\\\\\""],"z":"]}"}',
  `{"records":["${'x'.repeat(22)}\\"","${'x'.repeat(23)}\\"","${'x'.repeat(24)}\\\\","${'x'.repeat(25)}\\\\\\"y"]}`,
  `{"records":[${'[['.repeat(499)}${']]'.repeat(499)}]}`,
  '\ufeff{"records":[1]}',
  '{"records":["\\u005f_proto__", "constructor", {"constructor": 5}]}',
];

test('an object is read item by item as it is as a whole', () => {
  for (const text of good) {
    const bytes = Buffer.from(text);
    const { read, isCut } = byItems(bytes);
    assert.equal(isCut, true, text);
    assert.deepEqual(read, whole(bytes), text);
    assert.ok('value' in read, text);
  }
});

test('what cannot be cut is read as a whole: other values, two arrays of one name, a name in disguise, many items', () => {
  const cases = [
    '[{"records":[1]}]',
    '5',
    '{}',
    '{"records":{}}',
    '{"records":"x"}',
    '{"records":[1],"records":[2]}',
    '{"records":[1],"records":5}',
    '{"records":5,"records":[1]}',
    '{"records":[1],"\\u0072ecords":[2]}',
    '{"\\u0072ecords":[1],"records":[2]}',
    '{"\\u0072ecords":[1]}',
    `{"records":[${new Array(1001).fill(0).join()}]}`,
  ];
  for (const text of cases) assertSame(text);
  assert.equal(byItems(Buffer.from(cases.at(-1) ?? '')).isCut, false);
});

test('text that is not valid JSON as a whole is not valid item by item', () => {
  const cases = [
    '',
    '{',
    '{"records"',
    '{"records":[',
    '{"records":[1',
    '{"records":[1,',
    '{"records":[,]}',
    '{"records":[1,]}',
    '{"records":[,1]}',
    '{"records":[1,,2]}',
    '{"records":[1 2]}',
    '{"records":[{]}]}',
    '{"records":[[}]]}',
    '{"records":[1}',
    '{"records":[1}]',
    '{"records":[1]]}',
    '{"records":[1]',
    '{"records":[1]}}',
    '{"records":[1]},',
    '{"records":["a]}',
    '{"records":["a\\"]}',
    '{"records":["a\nb"]}',
    '{"records":["a":1]}',
    '{"records":[\ufeff1]}',
    '{"records":[\u00a0]}',
    '{"records":[1]"a":2}',
    '{"a" "records":[1]}',
    '{"records":[{"__proto__":1}]}',
    '{"records":[{"a":[{"\\u005f_proto__":1}]}]}',
    '{"records":[],"__proto__":1}',
    '{"records":[{"constructor":{"prototype":1}}]}',
    '{"records":[{"\\u0063onstructor":{"prototype":1}}]}',
  ];
  for (const text of cases) {
    const bytes = Buffer.from(text);
    assert.deepEqual(whole(bytes), { error: 'SyntaxError' }, text);
    assert.deepEqual(byItems(bytes).read, { error: 'SyntaxError' }, text);
  }
});

test('malformed UTF-8 is replaced alike', () => {
  for (const bad of [[0xff], [0xc3], [0xe2, 0x82], [0xf0, 0x9f, 0x98], [0xed, 0xa0, 0x80], [0x80, 0x80]]) {
    const bytes = Buffer.concat([
      Buffer.from('{"records":["a'),
      Buffer.from(bad),
      Buffer.from('","b'),
      Buffer.from(bad),
      Buffer.from('c"],"x":"'),
      Buffer.from(bad),
      Buffer.from('"}'),
    ]);
    assertSame(bytes);
    assert.equal(byItems(bytes).isCut, true);
  }
});

test('any value, and any value with a piece of its text lost, doubled or replaced, is read alike', () => {
  const object = fc.record(
    { model: fc.string(), records: fc.array(fc.jsonValue(), { maxLength: 8 }), more: fc.jsonValue() },
    { requiredKeys: [] },
  );
  const spoiled = fc.tuple(
    object,
    fc.nat(),
    fc.nat(6),
    fc.constantFrom('', ',', '"', '\\', '[', ']', '{', '}', ' '),
  );
  fc.assert(
    fc.property(object, (value) => assertSame(JSON.stringify(value))),
    { numRuns: 500 },
  );
  fc.assert(
    fc.property(spoiled, ([value, place, length, by]) => {
      const text = JSON.stringify(value);
      const at = place % (text.length + 1);
      assertSame(text.slice(0, at) + by + text.slice(at + length));
    }),
    { numRuns: 3000 },
  );
});
