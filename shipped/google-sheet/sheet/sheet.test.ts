import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { columnLetters, quotedTitle, readLink, rowsRange, titleOf } from './a1.ts';
import type { Api } from './api.ts';
import { bookOf } from './book.ts';
import { type CellValue, cellReader, commonKind, type RawCell } from './cells.ts';
import { type Column, matchColumns } from './columns.ts';
import { digestOf } from './hash.ts';
import { merged } from './identify.ts';
import { type MatchRow, matchRows } from './match-rows.ts';
import { readValues } from './read.ts';
import type { Identity, SheetSettings } from './settings.ts';
import { packState, type SheetState, unpackState } from './state.ts';
import { identifyRows, knownRows, readTable, recordsOf } from './table.ts';
import { enteredValue } from './write.ts';

const settingsOf = (identity: Identity = 'content', keyColumn?: string): SheetSettings => ({
  ...{ spreadsheetId: 's', sheetId: 0, headerRow: 1, identity },
  ...(keyColumn !== undefined && { keyColumn }),
});
const empty: SheetState = { sheet: 's/0', columns: [], rows: [] };

/**
 * One look after another at a sheet, as the sync takes them; each answers the records and what was noticed. `held`: what is gone
 * stays known, since its deletion was held.
 */
function follow(first: SheetSettings) {
  let state = empty;
  return (values: RawCell[][], { held = false, settings = first } = {}) => {
    const table = readTable(values, { settings, state });
    const identified = identifyRows(table, settings);
    const now = knownRows(table, identified);
    const records = recordsOf(table, { ids: identified.ids, kinds: [], timeZone: 'Etc/GMT' });
    const rows = held ? merged({ before: table.gone, now, from: identified.from }) : now;
    const { sheet } = state;
    const kept = { sheet, columns: table.columns, headerRow: settings.headerRow };
    state = unpackState(packState({ ...kept, rows, ...(table.key && { key: table.key }) }), settings);
    return { records, changes: table.changes, headerIndex: table.headerIndex, ...identified };
  };
}
type Look = ReturnType<ReturnType<typeof follow>>;

/** What a cache would tell its follower. */
function actions(before: Look['records'], after: Look['records']) {
  const old = new Map(before.map(({ id, fields }) => [id, JSON.stringify(fields)]));
  const fresh = new Map(after.map(({ id, fields }) => [id, JSON.stringify(fields)]));
  assert.equal(fresh.size, after.length, 'an id stands twice');
  const ids = [...fresh.keys()];
  return {
    added: ids.filter((id) => !old.has(id)).length,
    updated: ids.filter((id) => old.has(id) && old.get(id) !== fresh.get(id)).length,
    deleted: [...old.keys()].filter((id) => !fresh.has(id)).length,
  };
}
const none = { added: 0, updated: 0, deleted: 0 };

const cell = fc.oneof(
  fc.constantFrom<RawCell>('', null, 0, 1, true, 'a', 'b', '#REF!'),
  fc.integer({ min: -5, max: 5 }),
  fc.string({ maxLength: 4 }),
);
const width = 3;
const row = fc.array(cell, { minLength: width, maxLength: width });
const body = fc.array(row, { maxLength: 25 });
const header: RawCell[] = ['Name', 'Count', 'Note'];
const eachIdentity = [settingsOf('content'), settingsOf('key', 'Name')];

describe('rows from one look to the next', () => {
  for (const settings of eachIdentity) {
    const by = `by ${settings.identity}`;

    test(`${by}: whatever order they are put into, nothing changes`, () => {
      fc.assert(
        fc.property(body, fc.infiniteStream(fc.double({ min: 0, max: 1, noNaN: true })), (rows, random) => {
          const look = follow(settings);
          const first = look([header, ...rows]);
          const keyed = rows.map((one) => ({ one, at: random.next().value as number }));
          const shuffled = keyed.sort((a, b) => a.at - b.at).map(({ one }) => one);
          assert.deepEqual(actions(first.records, look([header, ...shuffled]).records), none);
        }),
        { numRuns: 300 },
      );
    });

    test(`${by}: a row that is put in or taken out is one change`, () => {
      fc.assert(
        fc.property(body, row, fc.nat(), (rows, more, place) => {
          fc.pre(more.some((one) => one !== '' && one !== null));
          const look = follow(settings);
          const first = look([header, ...rows]);
          const at = place % (rows.length + 1);
          const second = look([header, ...rows.toSpliced(at, 0, more)]);
          const made = actions(first.records, second.records);
          assert.deepEqual([made.added, made.deleted], [1, 0]);
          assert.equal(made.updated, 0);
          assert.deepEqual(actions(second.records, look([header, ...rows]).records), { ...none, deleted: 1 });
        }),
        { numRuns: 300 },
      );
    });

    test(`${by}: no row is lost, and none stands twice, whatever happens`, () => {
      fc.assert(
        fc.property(fc.array(body, { minLength: 2, maxLength: 4 }), (looks) => {
          const look = follow(settings);
          for (const rows of looks) {
            const held = rows.filter((one) => one.some((value) => value !== '' && value !== null));
            const { records } = look([header, ...rows]);
            assert.equal(records.length, held.length);
            assert.equal(new Set(records.map(({ id }) => id)).size, held.length);
          }
        }),
        { numRuns: 300 },
      );
    });
  }

  test('by content: a cell that changes is an update of its row, wherever it stands', () => {
    const distinct = fc.uniqueArray(fc.integer({ min: 0, max: 1000 }), { minLength: 1, maxLength: 30 });
    fc.assert(
      fc.property(distinct, fc.nat(), fc.nat({ max: width - 1 }), (names, place, column) => {
        const rows = names.map((name) => [`n${name}`, name * 7, `note ${name}`] as RawCell[]);
        const look = follow(settingsOf('content'));
        const first = look([header, ...rows]);
        const at = place % rows.length;
        const changed = rows.with(at, rows[at]!.with(column, 'changed'));
        const second = look([header, ...changed]);
        assert.deepEqual(actions(first.records, second.records), { ...none, updated: 1 });
        assert.equal(second.records[at]!.id, first.records[at]!.id);
        // Also where the sheet is sorted at the same time.
        const third = look([header, ...rows.with(at, rows[at]!.with(column, 'again')).toReversed()]);
        assert.deepEqual(actions(second.records, third.records), { ...none, updated: 1 });
      }),
      { numRuns: 200 },
    );
  });

  test('by content: the one cell of a row can change, and a column can be filled again', () => {
    const look = follow(settingsOf('content'));
    const first = look([['Name'], ['a'], ['b'], ['c']]);
    assert.deepEqual(actions(first.records, look([['Name'], ['a'], ['B'], ['c']]).records), {
      ...none,
      updated: 1,
    });
    const filled = follow(settingsOf('content'));
    const rows = Array.from({ length: 2000 }, (_, at) => [`row ${at}`, at, 'x']);
    const before = filled([header, ...rows]);
    const after = filled([header, ...rows.map(([name, count]) => [name!, count!, 'y'])]);
    assert.deepEqual(actions(before.records, after.records), { ...none, updated: 2000 });
  });

  test('by content: one of many that are alike is known by its neighbours', () => {
    const rows = Array.from({ length: 200 }, (_, at) => [`c${at % 3}`, `s${at % 4}`, at % 7]);
    const look = follow(settingsOf('content'));
    const first = look([header, ...rows]);
    const changed = rows.with(50, ['c2', 's2', 'changed']);
    const second = look([header, ...changed.toSpliced(50, 0, ['new', 'new', 'new'])]);
    assert.deepEqual(actions(first.records, second.records), { added: 1, updated: 1, deleted: 0 });
    assert.equal(second.records[51]!.id, first.records[50]!.id);
  });

  test('by content: many alike rows that all changed, one of them new, go by their order', () => {
    const rows = Array.from({ length: 300 }, (_, at) => [`c${at % 3}`, `s${at % 4}`, `old ${at}`]);
    const look = follow(settingsOf('content'));
    const first = look([header, ...rows]);
    const changed = rows.map(([color, size], at) => [color!, size!, `new ${at}`]);
    const second = look([header, ['x', 'y', 'z'], ...changed]);
    assert.deepEqual(actions(first.records, second.records), { added: 1, updated: 300, deleted: 0 });
    assert.equal(second.records[7]!.id, first.records[6]!.id);
  });

  test('by content: a value that no other row has tells a row that moved and changed', () => {
    const wide = ['SKU', 'A', 'B', 'C', 'D'];
    const rows = Array.from({ length: 20 }, (_, at) => [`s-${at}`, `a${at}`, `b${at}`, `c${at}`, true]);
    const look = follow(settingsOf('content'));
    const first = look([wide, ...rows]);
    const [row, ...others] = rows;
    const second = look([wide, ...others, row!.with(1, 'x').with(2, 'y').with(3, 'z')]);
    assert.deepEqual(actions(first.records, second.records), { ...none, updated: 1 });
  });

  test('by content: where a row is taken out, the one below it that changed at the same time is not taken for it', () => {
    const goods = ['SKU', 'Kind', 'Color', 'Price'];
    const rows = Array.from({ length: 20 }, (_, at) => [`s-${at}`, 'shirt', 'red', 5 + at]);
    const [one, two, three, ...rest] = rows;
    for (const place of [0, 9, 19]) {
      const look = follow(settingsOf('content'));
      const first = look([goods, ...rows]);
      const changed = place === 19 ? 18 : place + 1;
      const without = rows.with(changed, rows[changed]!.with(3, 'sold out')).toSpliced(place, 1);
      const second = look([goods, ...without]);
      assert.deepEqual(actions(first.records, second.records), { added: 0, updated: 1, deleted: 1 });
      const id = first.records[changed]!.id;
      assert.equal(second.records.find((record) => record.id === id)?.fields.SKU, `s-${changed}`);
    }
    const look = follow(settingsOf('content'));
    const first = look([goods, one!, two!, three!, ...rest]);
    const second = look([goods, ['s-x', 'shirt', 'red', 1], one!.with(3, 'sold'), two!, three!, ...rest]);
    assert.deepEqual(actions(first.records, second.records), { added: 1, updated: 1, deleted: 0 });
    assert.equal(second.records[1]!.id, first.records[0]!.id);
  });

  test('by key: of rows with one key that all have changed each is one of them', () => {
    const look = follow(settingsOf('key', 'Name'));
    const first = look([header, ['k', 1, 'one'], ['k', 2, 'two'], ['k', 3, 'three']]);
    const second = look([header, ['k', 8, 'eight'], ['k', 9, 'nine']]);
    assert.deepEqual(actions(first.records, second.records), { added: 0, updated: 2, deleted: 1 });
  });

  test('by key: what has one key keeps its ids, first come first, and rows without a key are not lost', () => {
    const look = follow(settingsOf('key', 'Name'));
    const first = look([header, ['k', 1, 'one'], ['k', 2, 'two'], ['', 3, 'none'], [5, 4, 'number']]);
    assert.deepEqual(
      first.records.map(({ id }) => id).filter((id) => !id.startsWith('~')),
      ['k', 'k~2', '5'],
    );
    assert.deepEqual([first.duplicateKeys, first.blankKeys], [['k'], 1]);
    const second = look([header, ['k', 2, 'two'], ['', 3, 'none'], ['5', 4, 'number']]);
    assert.deepEqual(
      second.records.map(({ id }) => id),
      ['k~2', first.records[2]!.id, '5'],
    );
    // A key of its own goes before the number of a duplicate.
    const third = look([header, ['k', 2, 'two'], ['k~2', 9, 'own'], ['k', 1, 'one']]);
    assert.equal(third.records[1]!.id, 'k~2');
    assert.equal(new Set(third.records.map(({ id }) => id)).size, 3);
  });

  test('a key that is too long, or holds what no id may, is an id all the same', () => {
    const look = follow(settingsOf('key', 'Name'));
    const { records } = look([header, ['x'.repeat(900), 1], [`${'x'.repeat(900)}y`, 2], ['a\0b\ud800', 3]]);
    assert.ok(records.every(({ id }) => id.length <= 255 && !id.includes('\0') && id.isWellFormed()));
    assert.equal(new Set(records.map(({ id }) => id)).size, 3);
    // They are known again, also those that stand twice.
    const long = 'x'.repeat(900);
    const twice = follow(settingsOf('key', 'Name'));
    const first = twice([header, [long, 1, 'one'], [long, 2, 'two'], ['y'.repeat(900), 3, 'three']]);
    const second = twice([header, ['y'.repeat(900), 3, 'three'], [long, 2, 'two'], [long, 1, 'one']]);
    assert.deepEqual([...second.from], [2, 1, 0]);
    assert.deepEqual(actions(first.records, second.records), none);
  });

  test('by key: what a formula could not work out is no key', () => {
    const look = follow(settingsOf('key', 'Name'));
    const { duplicateKeys, blankKeys } = look([header, ['#N/A', 1, 'a'], ['#N/A', 2, 'b'], ['k', 3, 'c']]);
    assert.deepEqual([duplicateKeys, blankKeys], [[], 2]);
  });

  test('what is known of more rows than can be kept is refused before anything is written', () => {
    const row = { id: 'x'.repeat(250), digest: 'd'.repeat(16), signatures: ['abcd'] };
    const state = { sheet: 's/0', columns: [], rows: Array.from({ length: 240_000 }, () => row) };
    assert.throws(
      () => packState(state),
      (error: Error & { code: string }) => error.code === 'sheet_too_large',
    );
  });

  test('the same sheet read again gives the same ids, made of the content', () => {
    const rows = [header, ['a', 1, ''], ['b', 2, ''], ['b', 2, '']];
    const idsOf = () => follow(settingsOf('content'))(rows).records.map(({ id }) => id);
    assert.deepEqual(idsOf(), idsOf());
    assert.match(idsOf().join(), /^~[\w-]{16},(~[\w-]{16}),\1~2$/);
  });

  test('rows whose deletion is held are known among the others, where they stood', () => {
    const from = Int32Array.from([2, -1, 0]);
    const rows = merged({ before: ['a', 'b', 'c', 'd'], now: ['C', 'n', 'A'], from });
    assert.deepEqual(rows, ['C', 'd', 'n', 'A', 'b']);
  });

  test('a hundred thousand rows take about ten times as long as ten thousand', () => {
    const rowsOf = (count: number): MatchRow[] =>
      Array.from({ length: count }, (_, at) => ({
        digest: `d${at}`,
        signatures: [`${at}`, `${at % 7}`, 'x'],
      }));
    const steps = (count: number) => {
      let reads = 0;
      const counted = (rows: MatchRow[]) =>
        rows.map(({ digest, signatures }) => ({
          digest,
          get signatures() {
            reads += 1;
            return signatures;
          },
        }));
      const before = rowsOf(count);
      // Every third row has changed, and all of them stand in another order.
      const now = rowsOf(count)
        .map((one, at) =>
          at % 3 === 0 ? { digest: `${one.digest}!`, signatures: one.signatures.with(2, 'y') } : one,
        )
        .toReversed();
      const from = matchRows(counted(before), counted(now));
      assert.ok(from.every((of, at) => of === count - 1 - at));
      return reads;
    };
    assert.ok(steps(20_000) < 12 * steps(2_000));
  });
});

describe('columns', () => {
  const rows = (columns: number, count = 30) =>
    Array.from({ length: count }, (_, at) => Array.from({ length: columns }, (_, of) => `${of}-${at}`));
  const cases: [string, RawCell[], RawCell[], (values: string[][]) => string[][], object[]][] = [
    [
      'renamed',
      ['A', 'B', 'C'],
      ['A', 'Bee', 'C'],
      (v) => v,
      [{ change: 'renamed', field: 'Bee', previous: 'B' }],
    ],
    [
      'moved',
      ['A', 'B', 'C'],
      ['C', 'A', 'B'],
      (v) => v.map(([a, b, c]) => [c!, a!, b!]),
      [{ change: 'moved', field: 'C' }],
    ],
    [
      'added',
      ['A', 'B', 'C'],
      ['A', 'New', 'B', 'C'],
      (v) => v.map(([a, b, c], at) => [a!, `new ${at}`, b!, c!]),
      [{ change: 'added', field: 'New' }],
    ],
    [
      'removed',
      ['A', 'B', 'C'],
      ['A', 'C'],
      (v) => v.map(([a, , c]) => [a!, c!]),
      [{ change: 'removed', field: 'B' }],
    ],
    [
      'renamed and moved',
      ['A', 'B', 'C'],
      ['Cee', 'A', 'B'],
      (v) => v.map(([a, b, c]) => [c!, a!, b!]),
      [
        { change: 'renamed', field: 'Cee', previous: 'C' },
        { change: 'moved', field: 'Cee' },
      ],
    ],
    [
      'another one in its place',
      ['A', 'B', 'C'],
      ['A', 'Other', 'C'],
      (v) => v.map(([a, , c], at) => [a!, `other ${at}`, c!]),
      [
        { change: 'added', field: 'Other' },
        { change: 'removed', field: 'B' },
      ],
    ],
  ];
  for (const [name, before, after, turn, expected] of cases) {
    test(`${name}: it is told, and no row is another one by it`, () => {
      const look = follow(settingsOf('content'));
      const values = rows(3);
      const first = look([before, ...values]);
      const second = look([after, ...turn(values)]);
      assert.deepEqual(second.changes, expected);
      assert.deepEqual(
        second.records.map(({ id }) => id),
        first.records.map(({ id }) => id),
      );
      assert.deepEqual(look([after, ...turn(values)]).changes, []);
    });
  }

  test('blank and equal headers have names, which stay when columns move', () => {
    const look = follow(settingsOf('content'));
    const values = rows(4);
    const first = look([['Name', '', 'Name', 'Z'], ...values]);
    assert.deepEqual(Object.keys(first.records[0]!.fields), ['Name', 'Column B', 'Name (2)', 'Z']);
    const second = look([['', 'Name', 'Z', 'Name'], ...values.map(([a, b, c, d]) => [b!, c!, d!, a!])]);
    assert.deepEqual(second.records[0]!.fields, {
      'Column B': '1-0',
      'Name (2)': '2-0',
      Z: '3-0',
      Name: '0-0',
    });
    assert.deepEqual(actions(first.records, second.records).added, 0);
  });

  test('a header that was pushed down is found, and an empty sheet renames nothing', () => {
    const look = follow(settingsOf('content'));
    const values = rows(3);
    const first = look([['A', 'B', 'C'], ...values]);
    const second = look([['Report of May'], [], ['A', 'B', 'C'], ...values]);
    assert.equal(second.headerIndex, 2);
    assert.deepEqual(actions(first.records, second.records), none);
    const emptied = look([]);
    assert.deepEqual([emptied.records, emptied.changes], [[], []]);
  });

  test('a newly chosen header row is the header, even if the old header row is still there', () => {
    const look = follow(settingsOf('content'));
    const values = rows(2);
    const first = look([['Goods', 'of May'], ['SKU', 'Name'], ...values]);
    const settings = { ...settingsOf('content'), headerRow: 2 };
    const second = look([['Goods', 'of May'], ['SKU', 'Name'], ...values], { settings });
    assert.equal(second.headerIndex, 1);
    assert.deepEqual(Object.keys(second.records[0]!.fields), ['SKU', 'Name']);
    assert.deepEqual(actions(first.records, second.records), { added: 0, updated: 30, deleted: 1 });
  });

  test('a row that comes into the place of a deleted header is not taken for one', () => {
    for (const settings of [settingsOf('content'), settingsOf('key', 'A')]) {
      const look = follow(settings);
      const values = rows(3);
      const first = look([['A', 'B', 'C'], ...values]);
      assert.throws(
        () => look(values),
        (error: Error & { code: string }) => error.code === 'header_row_missing',
      );
      assert.deepEqual(actions(first.records, look([['A', 'B', 'C'], ...values]).records), none);
    }
  });

  test('a sheet that is still loading, or was emptied under another header, comes back as it was', () => {
    for (const between of [[['Loading...']], [['#REF!']], [['Other', 'headers', 'at all']], [[]]]) {
      const look = follow(settingsOf('content'));
      const values = rows(3);
      const first = look([['A', 'B', 'C'], ...values]);
      assert.deepEqual(look(between, { held: true }).changes, []);
      const after = look([['A', 'B', 'C'], ...values.toReversed()]);
      assert.deepEqual(actions(first.records, after.records), none);
    }
  });

  test('rows whose deletion is held are known again, also where columns changed meanwhile', () => {
    const look = follow(settingsOf('content'));
    const values = rows(3);
    const first = look([['A', 'B', 'C'], ...values]);
    look([['New', 'A', 'B', 'C'], ...values.slice(0, 3).map((row) => ['new', ...row])], { held: true });
    const after = look([['New', 'A', 'B', 'C'], ...values.toReversed().map((row) => ['new', ...row])]);
    assert.deepEqual(
      after.records.map(({ id }) => id),
      first.records.map(({ id }) => id).toReversed(),
    );
  });

  test('a key column may be named with other spaces than it has', () => {
    const look = follow(settingsOf('key', ' Order  no. '));
    assert.deepEqual(
      look([['Order no.'], ['a']]).records.map(({ id }) => id),
      ['a'],
    );
  });

  test('ten times as many columns, all of them renamed, take about ten times as long', () => {
    const reads = (count: number) => {
      let sum = 0;
      const columns = (head: string): Column[] =>
        Array.from({ length: count }, (_, index) => ({
          ...{ name: `${head}${index}`, index, header: `${head}${index}` },
          get sketch() {
            sum += 1;
            return { filled: 9, min: Array.from({ length: 9 }, (_, of) => index * 9 + of) };
          },
        }));
      const { from } = matchColumns(columns('old '), columns('new ').toReversed());
      assert.ok(from.every((of, at) => of === count - 1 - at));
      return sum;
    };
    assert.ok(reads(2_000) < 12 * reads(200));
  });

  test('a key column that was renamed is followed; one that is gone is refused', () => {
    const look = follow(settingsOf('key', 'A'));
    const values = rows(2);
    const first = look([['A', 'B'], ...values]);
    const second = look([['Number', 'B'], ...values]);
    assert.deepEqual(actions(first.records, second.records), { ...none, updated: 30 });
    look([['Number', 'B'], ...values]);
    assert.throws(
      () => look([['B'], ...values.map(([, b]) => [b!])]),
      (error: Error & { code: string }) =>
        error.code === 'key_column_missing' && /"Number"/.test(error.message),
    );
  });
});

describe('cells', () => {
  const read = cellReader('America/New_York');
  const cases: [RawCell, 'plain' | 'date' | 'time' | 'datetime', CellValue][] = [
    ['', 'plain', null],
    [undefined, 'date', null],
    [0, 'plain', 0],
    [false, 'plain', false],
    ['007', 'plain', '007'],
    ['#DIV/0!', 'plain', { error: '#DIV/0!' }],
    ['#hash', 'plain', '#hash'],
    [1, 'date', '1899-12-31'],
    [60, 'date', '1900-02-28'],
    [46_100, 'date', '2026-03-19'],
    [46_100.75, 'datetime', '2026-03-19T18:00:00-04:00'],
    [46_000.5, 'datetime', '2025-12-09T12:00:00-05:00'],
    [0.5, 'time', '12:00:00'],
    [1.5, 'time', '36:00:00'],
    ['text', 'date', 'text'],
    [1e12, 'date', 1e12],
    [1e20, 'plain', '100000000000000000000'],
    [0.1, 'plain', 0.1],
    // In the old local mean time, whose offset has seconds; in the hour that the clocks leave out, and that they show twice.
    [-7_000.5, 'datetime', '1880-10-29T12:00:00'],
    [46_089 + 2.5 / 24, 'datetime', '2026-03-08T02:30:00-05:00'],
    [46_327 + 1.5 / 24, 'datetime', '2026-11-01T01:30:00-04:00'],
    [-1.25, 'time', '-30:00:00'],
  ];
  for (const [cell, kind, expected] of cases) {
    test(`${JSON.stringify(cell)} as ${kind} is ${JSON.stringify(expected)}`, () => {
      assert.deepEqual(read(cell, kind), expected);
    });
  }

  test('what was read of a day or a time is written as what it was; what no calendar has stays a text', () => {
    const kinds = ['date', 'time', 'datetime'] as const;
    for (const serial of [-7_000.5, -1.25, 0.5, 1, 60, 46_000.25, 46_100.75]) {
      for (const kind of kinds) {
        const value = kind === 'date' ? Math.floor(serial) : serial;
        const text = read(value, kind) as string;
        assert.equal(enteredValue(text, { kind, timeZone: 'America/New_York' }), value, text);
      }
    }
    for (const text of ['2026-13-01', '2026-02-31', '2026-02-28T25:00:00', '2026-02-31T00:00:00Z']) {
      assert.equal(enteredValue(text, { kind: 'date', timeZone: 'Etc/GMT' }), text);
    }
  });

  test('an answer without a range is not that of an empty tab', async () => {
    const api = { post: async () => ({ data: Buffer.from('{}') }) } as unknown as Api;
    const rights = { canWrite: true, canSeeFiles: false, account: undefined };
    const values = await readValues(api, { settings: settingsOf(), rights, title: 'a', cellCount: 1 });
    assert.throws(values.cells, (error: Error & { code: string }) => error.code === 'upstream_unreadable');
  });

  test('a tab is protected where all of it is, for more than a warning; a chart has no cells', () => {
    const tab = (properties: object, ...protectedRanges: object[]) => ({
      properties: { sheetId: 1, title: 'T', ...properties },
      protectedRanges,
    });
    const sheets = [
      tab({}, { range: { sheetId: 1 } }),
      tab({}, { range: { sheetId: 1 }, warningOnly: true }),
      tab({}, { range: { sheetId: 1, startRowIndex: 0, endRowIndex: 1 } }),
      tab({ sheetType: 'OBJECT' }),
    ];
    assert.deepEqual(
      bookOf({ spreadsheetId: 's', sheets }).tabs.map((one) => [one.protected, one.kind, one.rows]),
      [
        [true, 'grid', 0],
        [false, 'grid', 0],
        [false, 'grid', 0],
        [false, 'object', 0],
      ],
    );
  });

  test('a column is what most of its numbers are; a zone that nobody knows gives no offset', () => {
    assert.equal(commonKind(['date', 'plain', 'date']), 'date');
    assert.equal(commonKind([]), 'plain');
    assert.equal(cellReader('Nowhere/None')(46_100.5, 'datetime'), '2026-03-19T12:00:00');
  });

  test('names of ranges and links are read as they are written', () => {
    assert.deepEqual([0, 25, 26, 701, 702].map(columnLetters), ['A', 'Z', 'AA', 'ZZ', 'AAA']);
    fc.assert(
      fc.property(fc.string({ minLength: 1 }), (title) => {
        assert.equal(titleOf(`${quotedTitle(title)}!A1:B2`), title);
      }),
    );
    assert.equal(rowsRange('a', { start: 0, end: 2 }), "'a'!1:2");
    const id = '1AbCdefghijklmnopqrstuvwxyz_0123456789-ABCDE';
    const found = { spreadsheetId: id };
    assert.deepEqual(readLink(id), found);
    assert.deepEqual(readLink(` https://docs.google.com/spreadsheets/d/${id}/edit#gid=12 `), {
      ...found,
      sheetId: 12,
    });
    assert.deepEqual(readLink(`https://docs.google.com/spreadsheets/u/1/d/${id}/edit?gid=0&range=A1#gid=0`), {
      ...found,
      sheetId: 0,
    });
    for (const other of ['', 'orders', 'https://example.com/orders', 'ftp://x/d/1']) {
      assert.equal(readLink(other), undefined, other);
    }
    assert.equal(digestOf('a').length, 16);
  });
});
