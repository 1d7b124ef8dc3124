import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { methods } from './discovery.ts';
import { type Bench, startBench } from './testing.ts';

let bench: Bench;
let id: string;
before(async () => {
  bench = await startBench();
  id = await bench.spreadsheet([['a']]);
});
after(() => bench.close());

const batch = (requests: unknown) =>
  bench.call('POST', `/v4/spreadsheets/${id}:batchUpdate`, { body: { requests } });

test('the document has the seventeen methods', () => {
  assert.equal(methods.length, 17);
});

const bodies: [requests: unknown, message: string][] = [
  [[{ x: {} }], `Invalid JSON payload received. Unknown name "x" at 'requests[0]': Cannot find field.`],
  [
    [{ addSheet: { properties: { titel: 'a' } } }],
    `Invalid JSON payload received. Unknown name "titel" at 'requests[0].add_sheet.properties': Cannot find field.`,
  ],
  [
    [{ addSheet: { properties: { title: 5 } } }],
    `Invalid value at 'requests[0].add_sheet.properties.title' (TYPE_STRING), 5`,
  ],
  [
    [{ addSheet: { properties: { sheetId: 'x' } } }],
    `Invalid value at 'requests[0].add_sheet.properties.sheet_id' (TYPE_INT32), "x"`,
  ],
  [
    [{ addSheet: { properties: { sheetId: 1.5 } } }],
    `Invalid value at 'requests[0].add_sheet.properties.sheet_id' (TYPE_INT32), 1.5`,
  ],
  [
    [{ addSheet: { properties: { hidden: 'maybe' } } }],
    `Invalid value at 'requests[0].add_sheet.properties.hidden' (TYPE_BOOL), "maybe"`,
  ],
  [
    [{ addSheet: { properties: { sheetType: 'ROUND' } } }],
    `Invalid value at 'requests[0].add_sheet.properties.sheet_type' (type.googleapis.com/google.apps.sheets.v4.SheetType), "ROUND"`,
  ],
  [
    [{ appendDimension: { dimension: 'DEPTH' } }],
    `Invalid value at 'requests[0].append_dimension.dimension' (type.googleapis.com/google.apps.sheets.v4.Dimension), "DEPTH"`,
  ],
  [
    [{ addSheet: 'yes' }],
    `Invalid value at 'requests[0].add_sheet' (type.googleapis.com/google.apps.sheets.v4.AddSheetRequest), "yes"`,
  ],
  [
    [{ addSheet: { properties: { title: {} } } }],
    `Invalid value at 'requests[0].add_sheet.properties.title' (TYPE_STRING), Starting an object on a scalar field`,
  ],
  [
    [{ addSheet: { properties: { title: [] } } }],
    `Invalid JSON payload received. Unknown name "title" at 'requests[0].add_sheet.properties': Proto field is not repeating, cannot start list.`,
  ],
  [
    [{ addSheet: {}, deleteSheet: {} }],
    `Invalid value at 'requests[0]' (oneof), oneof field 'kind' is already set. Cannot set 'deleteSheet'`,
  ],
];

test('a body that does not fit the document is refused with the proto path of the fault', async () => {
  for (const [requests, message] of bodies) {
    const answer = await batch(requests);
    assert.equal(answer.status, 400, message);
    assert.equal(answer.message, message);
    assert.equal(answer.json.error.details[0].fieldViolations[0].description, message);
  }
});

test('each fault has its own line and its own violation', async () => {
  const answer = await batch([{ x: 1 }, { addSheet: { y: 1, z: 2 } }]);
  assert.deepEqual(
    answer.json.error.details[0].fieldViolations.map((one: { field: string }) => one.field),
    ['requests[0]', 'requests[1].add_sheet', 'requests[1].add_sheet'],
  );
  assert.equal(answer.message.split('\n').length, 3);
});

test('field names may be written in snake case, and null means not given', async () => {
  const answer = await batch([
    { add_sheet: { properties: { title: 'Snake', grid_properties: { row_count: 5 }, hidden: null } } },
  ]);
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.json.replies[0].addSheet.properties.gridProperties.rowCount, 5);
});

test('a body that is not JSON is refused', async () => {
  const answer = await bench.call('POST', `/v4/spreadsheets/${id}:batchUpdate`, { body: '{"requests": [' });
  assert.equal(answer.status, 400);
  assert.match(answer.message, /^Invalid JSON payload received\. /);
});

const values = (query: string) => bench.call('GET', `/v4/spreadsheets/${id}/values/A1?${query}`);

test('a query is checked like a body', async () => {
  assert.equal(
    (await values('environment=dev')).message,
    `Invalid JSON payload received. Unknown name "environment": Cannot bind query parameter. Field 'environment' could not be found in request message.`,
  );
  assert.equal(
    (await values('majorDimension=DEPTH')).message,
    `Invalid value at 'major_dimension' (type.googleapis.com/google.apps.sheets.v4.Dimension), "DEPTH"`,
  );
  assert.equal(
    (await values('valueRenderOption=x')).message,
    `Invalid value at 'value_render_option' (type.googleapis.com/google.apps.sheets.v4.ValueRenderOption), "x"`,
  );
  assert.equal((await values('value_render_option=FORMULA&prettyPrint=True')).status, 200);
});

test('cell values that are no scalars are quoted back in proto text', async () => {
  const put = (cell: unknown) =>
    bench.call('PUT', `/v4/spreadsheets/${id}/values/A1?valueInputOption=RAW`, {
      body: { values: [['a', cell]] },
    });
  assert.equal(
    (await put(['x'])).message,
    'Invalid values[0][1]: list_value {\n  values {\n    string_value: "x"\n  }\n}\n',
  );
  assert.equal(
    (await put({ n: 1 })).message,
    'Invalid values[0][1]: struct_value {\n  fields {\n    key: "n"\n    value {\n      number_value: 1\n    }\n  }\n}\n',
  );
  const flat = await bench.call('PUT', `/v4/spreadsheets/${id}/values/A1?valueInputOption=RAW`, {
    body: { values: ['a'] },
  });
  assert.equal(
    flat.message,
    `Invalid value at 'data.values[0]' (type.googleapis.com/google.protobuf.ListValue), "a"`,
  );
});
