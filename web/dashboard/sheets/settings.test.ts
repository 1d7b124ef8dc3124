import assert from 'node:assert/strict';
import test from 'node:test';
import { chosenOf, freeVariant, keepsIds } from './settings.ts';

test('sheets are read out of metadata that holds other things, the one without a name first', () => {
  const one = { spreadsheetId: 'a', sheetId: 7 };
  const chosen = chosenOf({
    plan: 'team',
    sheets: {
      people: one,
      base: { ...one, headerRow: 3, identity: 'key', keyColumn: 'ID' },
      odd: 'x',
      less: {},
    },
  });
  assert.deepEqual(chosen, [
    { ...one, variant: 'base', headerRow: 3, identity: 'key', keyColumn: 'ID' },
    { ...one, variant: 'people', headerRow: 1, identity: 'content' },
  ]);
  for (const sheets of [undefined, null, [], 'x']) assert.deepEqual(chosenOf({ sheets }), []);
});

test('a variant gets a name that none has', () => {
  const named = (tab: string, ...taken: string[]) => freeVariant({ title: 'Büro 2', tab }, new Set(taken));
  assert.equal(named('Orders'), 'base');
  assert.equal(named('Orders & more', 'base'), 'orders-more');
  assert.equal(named('Orders', 'base', 'orders', 'orders-2'), 'orders-3');
  assert.equal(named('表', 'base'), 'buro-2');
});

test('records keep their IDs while rows are identified in the same way', () => {
  const one = { spreadsheetId: 'a', sheetId: 0, headerRow: 1, identity: 'key', keyColumn: 'ID' } as const;
  assert.ok(keepsIds(one, { ...one, headerRow: 2 }));
  assert.ok(!keepsIds(one, { ...one, keyColumn: 'E-mail' }));
  assert.ok(!keepsIds(one, { spreadsheetId: 'a', sheetId: 0, headerRow: 1, identity: 'content' }));
});
