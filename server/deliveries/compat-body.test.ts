import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type CompatType, compatTypes } from '../events/compat-types.ts';
import { eventCatalogue } from '../events/event-types.ts';
import { compatBody } from './send.ts';

const bodyOf = (type: CompatType) =>
  compatBody(type, {
    environment: 'dev',
    brandWord: 'trellis',
    authModeOf: () => 'OAUTH2',
    data: eventCatalogue[type].data.parse(eventCatalogue[type].example),
  });

test('the body of a sync has the changes by model, with sorted keys', () => {
  const times = { modifiedAfter: '2026-11-21T10:15:00.000Z', queryTimeStamp: '2026-11-21T10:15:00.000Z' };
  const changed = {
    connectionId: 'ada-sheets',
    from: 'trellis',
    model: 'Row',
    modifiedAfter: times.modifiedAfter,
    providerConfigKey: 'google-sheet',
    queryTimeStamp: times.queryTimeStamp,
    responseResults: { added: 12, deleted: 0, updated: 3 },
    success: true,
    syncName: 'rows',
    syncType: 'INCREMENTAL',
    syncVariant: 'base',
    type: 'sync',
  };
  assert.equal(bodyOf('sync.changed'), JSON.stringify(changed));
  const unchanged = { ...changed, responseResults: { added: 0, deleted: 0, updated: 0 } };
  assert.equal(bodyOf('sync.unchanged'), JSON.stringify(unchanged));
});

test('the body of a failed sync has its error and its times', () => {
  const { error, failedAt, startedAt, success, syncName, type } = JSON.parse(bodyOf('sync.failed'));
  assert.deepEqual([success, syncName, type], [false, 'rows', 'sync']);
  assert.deepEqual(error, { description: 'Request failed with status code 500', type: 'function_threw' });
  assert.deepEqual([startedAt, failedAt], ['2026-11-21T10:15:00.000Z', '2026-11-21T10:15:02.512Z']);
});

test('every event type of official clients has a body', () => {
  for (const type of Object.keys(compatTypes) as CompatType[])
    assert.equal(typeof JSON.parse(bodyOf(type)).type, 'string');
});
