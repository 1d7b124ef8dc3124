import assert from 'node:assert/strict';
import { test } from 'node:test';
import { shippedCatalog } from '../../test/support/catalog.ts';
import { quotaWith } from './quota-setting.ts';

const { quota } = shippedCatalog.get('google-sheet').api;
const real = { isTest: false };

test('a quota is on but for test integrations, and can be switched either way', () => {
  assert.equal(quotaWith(quota, { setting: undefined, isTest: false }), quota);
  assert.equal(quotaWith(quota, { setting: undefined, isTest: true }), undefined);
  assert.equal(quotaWith(quota, { setting: 'on', isTest: true }), quota);
  assert.equal(quotaWith(quota, { setting: ' off ', isTest: false }), undefined);
  assert.equal(quotaWith(undefined, { setting: 'on', isTest: false }), undefined);
});

test('other numbers replace those they name, and the burst follows', () => {
  const setting = 'ReadRequestsPerMinutePerProject=600, WriteRequestsPerMinutePerUser = 120';
  const counts = quotaWith(quota, { setting, ...real })?.limits.map(({ count, burst }) => [count, burst]);
  assert.deepEqual(counts, [
    [600, 120],
    [60, undefined],
    [300, 60],
    [120, undefined],
  ]);
});

test('a setting with neither field is refused with the allowed fields', () => {
  for (const setting of ['Reads=5', 'ReadRequestsPerMinutePerProject=0', 'yes', 'on,off']) {
    assert.throws(
      () => quotaWith(quota, { setting, ...real }),
      /must be "on", "off" or numbers such as Read/,
    );
  }
});
