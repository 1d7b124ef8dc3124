// Slow: its tests take seconds each.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { getSchema, methods, resolveSchema, type Schema } from './discovery.ts';
import { type Bench, startBench } from './testing.ts';

let bench: Bench;
before(async () => {
  bench = await startBench();
});
after(() => bench.close());

const integers = fc.oneof(
  { weight: 8, arbitrary: fc.integer({ min: 0, max: 6 }) },
  { weight: 1, arbitrary: fc.integer({ min: -3, max: 1200 }) },
  { weight: 1, arbitrary: fc.constantFrom(2 ** 31 - 1, -(2 ** 31)) },
);
const texts = fc.constantFrom(
  '',
  'a',
  '=A1+B2',
  "=SUM(A:B,'Sheet1'!2:3)",
  '1/15/2024',
  'Sheet1',
  'spot',
  'A1:B2',
  '$&',
  'x'.repeat(200),
);
const masks = fc.constantFrom(
  '*',
  'title',
  'userEnteredValue',
  'userEnteredFormat.numberFormat,note',
  'metadataValue',
  'gridProperties',
  'pixelSize',
  'a(b',
  ',',
);

// Without these a request says nothing; they are nearly always there.
const usual = [
  'range',
  'fields',
  'source',
  'dimensions',
  'dimension',
  'shiftDimension',
  'find',
  'properties',
  'rows',
  'sortSpecs',
];

const sheetIds = fc.constantFrom(0, 0, 0, 0, 1, 9);
// Parts that the sandbox answers with 501 hide what comes after them.
const refused = /^(dataSource|pivotTable|chipRuns|tableId)|Color/;

/** Messages that fit a schema of the discovery document, most fields absent, nesting kept short. */
function fitting(schema: Schema, depth: number): fc.Arbitrary<unknown> {
  const type = resolveSchema(schema);
  if (type.enum) return fc.constantFrom(...type.enum);
  if (type.format === 'google-fieldmask') return masks;
  if (type.type === 'integer') return integers;
  if (type.type === 'number') return fc.oneof(integers, fc.double({ noNaN: true, noDefaultInfinity: true }));
  if (type.type === 'boolean') return fc.boolean();
  if (type.type === 'any') return fc.oneof(texts, integers, fc.constantFrom(null, true, [], {}));
  if (type.type === 'string') return texts;
  if (type.type === 'array') {
    return depth === 0 ? fc.constant([]) : fc.array(fitting(type.items ?? {}, depth - 1), { maxLength: 3 });
  }
  const properties = Object.entries(type.properties ?? {}).filter(([name]) => !refused.test(name));
  if (depth === 0 || properties.length === 0) return fc.constant({});
  const model = Object.fromEntries(
    properties.map(([name, one]) => {
      const values = /^(sheetId|sourceSheetId)$/.test(name) ? sheetIds : fitting(one, depth - 1);
      return [name, fc.option(values, { nil: undefined, freq: usual.includes(name) ? 30 : 3 })];
    }),
  );
  return fc.record(model);
}

const kinds = [
  'addNamedRange',
  'addSheet',
  'appendCells',
  'appendDimension',
  'autoResizeDimensions',
  'createDeveloperMetadata',
  'deleteDeveloperMetadata',
  'deleteDimension',
  'deleteNamedRange',
  'deleteRange',
  'deleteSheet',
  'duplicateSheet',
  'findReplace',
  'insertDimension',
  'insertRange',
  'mergeCells',
  'moveDimension',
  'setDataValidation',
  'sortRange',
  'unmergeCells',
  'updateCells',
  'updateDeveloperMetadata',
  'updateDimensionProperties',
  'updateSheetProperties',
  'updateSpreadsheetProperties',
] as const;
const requests = fc.oneof(
  ...kinds.map((kind) =>
    fitting(getSchema('Request').properties?.[kind] ?? {}, 4).map((request) => ({ [kind]: request })),
  ),
);

/** Small, so that whole-sheet edits stay quick. */
async function smallSpreadsheet(): Promise<string> {
  const cell = (formulaValue: string) => ({ userEnteredValue: { formulaValue } });
  const { json } = await bench.call('POST', '/v4/spreadsheets', {
    body: {
      sheets: [
        {
          properties: { title: 'Sheet1', gridProperties: { rowCount: 6, columnCount: 5 } },
          data: [
            {
              rowData: [
                { values: [cell('=B2'), cell('=SUM(A2:B4)')] },
                { values: [{ userEnteredValue: { numberValue: 3 }, note: 'n' }] },
              ],
            },
          ],
        },
        { properties: { sheetId: 1, title: 'Two', gridProperties: { rowCount: 3, columnCount: 3 } } },
      ],
    },
  });
  return json.spreadsheetId;
}

test('no batch of edits that fits the document breaks a spreadsheet', async () => {
  const seen = new Map<number, number>();
  await fc.assert(
    fc.asyncProperty(fc.array(requests, { minLength: 1, maxLength: 6 }), async (batch) => {
      const id = await smallSpreadsheet();
      for (const request of batch) {
        const { status, text } = await bench.call('POST', `/v4/spreadsheets/${id}:batchUpdate`, {
          body: { requests: [request] },
        });
        seen.set(status, (seen.get(status) ?? 0) + 1);
        assert.ok([200, 400, 501].includes(status), text);
        const whole = await bench.call(
          'GET',
          `/v4/spreadsheets/${id}?includeGridData=true&fields=sheets(properties,data.rowData,merges)`,
        );
        assert.equal(whole.status, 200, whole.text);
        for (const { properties, data } of whole.json.sheets) {
          const { rowCount, columnCount } = properties.gridProperties;
          assert.ok(rowCount > 0 && columnCount > 0);
          const rows: { values?: unknown[] }[] = data[0].rowData ?? [];
          assert.ok(rows.length <= rowCount && rows.every(({ values = [] }) => values.length <= columnCount));
        }
      }
    }),
    { numRuns: 150, seed: 20260921, endOnFailure: true },
  );
  assert.ok((seen.get(200) ?? 0) > 50 && (seen.get(400) ?? 0) > 50, JSON.stringify([...seen]));
});

test('no request that fits the document is answered with a failure', async () => {
  const id = await smallSpreadsheet();
  const calls = fc
    .constantFrom(...methods.filter((method) => method.id !== 'sheets.spreadsheets.batchUpdate'))
    .chain((method) => {
      const query = Object.entries(method.parameters).filter(
        ([, parameter]) => parameter.location === 'query',
      );
      return fc.record({
        method: fc.constant(method),
        range: fc.constantFrom('A1', 'Sheet1', 'Two!B:C', '2:3', 'A4:ZZ9', 'nothing', "'Sheet1'!A9", 'A1:B2'),
        query: fc.record(
          Object.fromEntries(
            query.map(([name, parameter]) => [name, fc.option(fitting(parameter, 1), { nil: undefined })]),
          ),
        ),
        body: method.request ? fitting(getSchema(method.request.$ref), 5) : fc.constant(undefined),
      });
    });
  await fc.assert(
    fc.asyncProperty(calls, async ({ method, range, query, body }) => {
      const path = method.flatPath
        .replace('{spreadsheetId}', id)
        .replace('{range}', encodeURIComponent(range))
        .replace(/\{(sheetId|metadataId)\}/, '0');
      const parameters = Object.entries(query).flatMap(([name, value]) =>
        value === undefined ? [] : [[name, String(value)]],
      );
      const answer = await bench.call(method.httpMethod, `/${path}?${new URLSearchParams(parameters)}`, {
        body,
      });
      assert.ok([200, 400, 404, 501].includes(answer.status), answer.text);
    }),
    { numRuns: 400, seed: 20260921, endOnFailure: true },
  );
});
