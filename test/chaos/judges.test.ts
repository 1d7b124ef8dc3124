import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compareMarks, type Marks } from './marks.ts';
import { deleted, openModel, pruned, saved, updated } from './record-model.ts';

const state = { version: 1, part: 0, isDeleted: false, isPruned: false };

test('a record that is not as it was acknowledged is found, whatever is wrong with it', () => {
  const model = openModel();
  model.done(['a', 'b'], saved(1));
  const faults = (standing: Record<string, typeof state>) =>
    model.faults(new Map(Object.entries(standing))).length;
  assert.equal(faults({ a: state, b: state }), 0);
  assert.equal(faults({ a: state }), 1);
  assert.equal(faults({ a: state, b: { ...state, version: 2 } }), 1);
  assert.equal(faults({ a: state, b: { ...state, isDeleted: true } }), 1);
  assert.equal(faults({ a: state, b: { ...state, isPruned: true } }), 1);
  assert.equal(faults({ a: state, b: state, c: state }), 1);
  model.done(['a'], updated(7));
  model.done(['b'], pruned);
  assert.equal(faults({ a: { ...state, part: 7 }, b: { ...state, isPruned: true } }), 0);
  assert.equal(faults({ a: state, b: { ...state, isPruned: true } }), 1);
});

test('a write without an answer may stand or not, and the next one that is answered settles it', () => {
  const model = openModel();
  model.done(['a'], saved(1));
  model.unsure(['a'], saved(2));
  const isFine = (found: typeof state) => model.faults(new Map([['a', found]])).length === 0;
  assert.ok(isFine(state) && isFine({ ...state, version: 2 }) && !isFine({ ...state, version: 3 }));
  model.done(['a'], deleted);
  assert.ok(isFine({ ...state, version: 2, isDeleted: true }) && !isFine(state));
  model.done(['a'], saved(4));
  assert.ok(isFine({ ...state, version: 4 }) && !isFine(state) && !isFine({ ...state, version: 2 }));
});

test('an attempt that writes after another has begun is an overlap, one that was cut off is none', () => {
  const judged = (...marks: string[]) => {
    const found: Marks = { overlaps: [], attempts: 0, abandoned: 0 };
    compareMarks(marks, found);
    return found;
  };
  assert.deepEqual(judged('a:begin', 'a:end', 'b:begin', 'b:end'), {
    overlaps: [],
    attempts: 2,
    abandoned: 0,
  });
  assert.deepEqual(judged('a:begin', 'b:begin', 'b:end'), { overlaps: [], attempts: 2, abandoned: 1 });
  assert.equal(judged('a:begin', 'b:begin', 'a:end', 'b:end').overlaps.length, 2);
  assert.equal(judged('a:begin', 'b:begin', 'b:end', 'a:end').overlaps.length, 1);
});
