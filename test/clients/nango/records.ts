import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import type { Nango } from '@nangohq/node';
import * as shapes from './shapes.ts';
import { shaped } from './shapes.ts';
import { key, type MethodTests, type NodeSubject, refusal } from './subject.ts';

const model = 'Airport';
type Airport = { id: string; city: string };

/** Records, and the syncs that make them. */
export const recordMethods: MethodTests = {
  async listRecords(subject) {
    const { client, place } = subject;
    await save(subject, [
      { id: 1, city: 'Oslo' },
      { id: 2, city: 'Rome' },
      { id: 3, city: 'Bonn' },
    ]);
    const list = async (more: object = {}) => {
      const answer = await client.listRecords<Airport>({ ...place, model, ...more });
      for (const { _nango_metadata: metadata } of answer.records) shaped(shapes.recordMetadata, metadata);
      return { ids: answer.records.map(({ id }) => id), ...answer };
    };
    const all = await list();
    assert.deepEqual(
      all.records.map(({ _nango_metadata: { last_action }, ...record }) => [record, last_action]),
      [
        [{ id: '1', city: 'Oslo' }, 'ADDED'],
        [{ id: '2', city: 'Rome' }, 'ADDED'],
        [{ id: '3', city: 'Bonn' }, 'ADDED'],
      ],
    );
    assert.equal(all.next_cursor, null, 'a page that holds the rest has none after it');
    const first = await list({ limit: 2 });
    assert.deepEqual(
      [first.ids, first.next_cursor],
      [['1', '2'], first.records[1]?._nango_metadata.cursor],
      'the cursor of the last record leads on',
    );
    assert.deepEqual((await list({ cursor: first.next_cursor })).ids, ['3']);
    assert.deepEqual((await list({ ids: ['3', '1', 'none'] })).ids, ['1', '3']);

    await save(subject, [{ id: 2, city: 'Roma' }]);
    await remove(subject, [{ id: 1 }]);
    const follow = await list({ cursor: all.records[2]?._nango_metadata.cursor });
    assert.deepEqual(
      follow.records.map(({ id, _nango_metadata: { last_action } }) => [id, last_action]),
      [
        ['2', 'UPDATED'],
        ['1', 'DELETED'],
      ],
    );
    assert.ok(follow.records[1]?._nango_metadata.deleted_at);
    assert.deepEqual((await list({ filter: 'added' })).ids, ['3']);
    assert.deepEqual((await list({ filter: 'updated,deleted' })).ids, ['2', '1']);
    const since = follow.records[0]?._nango_metadata.last_modified_at;
    assert.deepEqual((await list({ modifiedAfter: since })).ids, ['2', '1'], 'what we print, we read');
    assert.deepEqual((await list({ delta: '2020-01-01T00:00:00Z' })).ids, ['3', '2', '1']);
    assert.deepEqual((await list({ variant: 'base' })).ids, ['3', '2', '1']);
    assert.deepEqual((await list({ variant: 'other' })).ids, []);
    const other = { ...place, model };
    assert.deepEqual(await refusal(client.listRecords({ ...other, connectionId: 'nobody' })), [
      400,
      'unknown_connection',
    ]);
    assert.deepEqual(await refusal(client.listRecords({ ...other, cursor: 'none' })), [
      400,
      'invalid_cursor',
    ]);
    assert.deepEqual(await refusal(client.listRecords({ ...other, connectionId: '' })), [
      400,
      'invalid_headers',
    ]);
  },

  async pruneRecords(subject) {
    const { client, place } = subject;
    const { records } = await client.listRecords<Airport>({ ...place, model });
    const untilCursor = records[1]!._nango_metadata.cursor;
    const at = { ...place, model, untilCursor };
    assert.deepEqual(await client.pruneRecords({ ...at, limit: 1 }), { count: 1, has_more: true });
    assert.deepEqual(await client.pruneRecords(at), { count: 1, has_more: false });
    assert.deepEqual(await client.pruneRecords(at), { count: 0, has_more: false });
    const after = await client.listRecords<Airport>({ ...place, model });
    assert.deepEqual(
      after.records.map(({ _nango_metadata: metadata, ...record }) => [record, metadata.pruned_at !== null]),
      [
        [{ id: '3' }, true],
        [{ id: '2' }, true],
        [{ id: '1', city: 'Oslo' }, false],
      ],
      'the payload is gone, the record and its deletion stay',
    );
    assert.deepEqual(
      after.records.map(({ _nango_metadata: { cursor } }) => cursor),
      records.map(({ _nango_metadata: { cursor } }) => cursor),
      'no cursor moved',
    );
    await save(subject, [{ id: 3, city: 'Bonn' }]);
    const [restored] = (await client.listRecords<Airport>({ ...place, model })).records;
    assert.deepEqual([restored?.city, restored?._nango_metadata.pruned_at], ['Bonn', null]);
    assert.deepEqual(await refusal(client.pruneRecords({ ...at, untilCursor: 'none' })), [
      400,
      'invalid_cursor',
    ]);
    assert.deepEqual(await refusal(client.pruneRecords({ ...at, variant: 'other' })), [
      400,
      'invalid_cursor',
    ]);
  },

  async triggerSync(subject) {
    const { client, connectionId } = subject;
    const answer: unknown = await client.triggerSync(key, ['things'], connectionId);
    const { status, data } = answer as { status: number; data: unknown };
    assert.deepEqual([status, data], [200, { success: true }]);
    await ended(subject, 1);
    const records = async () =>
      (await client.listRecords({ ...subject.place, model: 'Thing' })).records.map(
        ({ _nango_metadata: { cursor, last_action } }) => ({ cursor, last_action }),
      );
    const saved = await records();
    assert.deepEqual(
      saved.map(({ last_action }) => last_action),
      ['ADDED'],
    );
    await client.triggerSync(key, [{ name: 'things', variant: 'base' }], connectionId, { reset: true });
    await ended(subject, 2);
    assert.deepEqual(await records(), saved, 'it is read again, and nothing changed');
    await client.triggerSync(key, ['things'], connectionId, { reset: true, emptyCache: true });
    await ended(subject, 3);
    const [afterReset] = await records();
    assert.ok(afterReset?.last_action === 'ADDED' && afterReset.cursor !== saved[0]?.cursor);
    // The older forms.
    await client.triggerSync(key, ['things::base'], connectionId, false);
    await ended(subject, 4);
    await client.triggerSync(key, ['things'], connectionId, 'full_refresh');
    await ended(subject, 5);
    await client.triggerSync(key, [], connectionId);
    await ended(subject, 6);
    await client.triggerSync(key);
    await ended(subject, 7);
    assert.deepEqual(await refusal(client.triggerSync(key, ['none'], connectionId)), [400, 'no_syncs_found']);
    assert.deepEqual(await refusal(client.triggerSync(key, ['things'], 'nobody')), [
      404,
      'unknown_connection',
    ]);
    assert.deepEqual(await refusal(client.triggerSync('nobody', ['things'])), [
      400,
      'unknown_provider_config',
    ]);
    assert.deepEqual(await refusal(client.triggerSync('', ['things'])), [400, 'invalid_body']);
  },

  async syncStatus({ client, connectionId }) {
    const { syncs } = await client.syncStatus(key, '*', connectionId);
    const [one, ...others] = syncs.map((sync) => shaped(shapes.syncStatus, sync));
    assert.deepEqual(others, []);
    assert.deepEqual(
      [one?.name, one?.variant, one?.connection_id, one?.type, one?.status, one?.latestExecutionStatus],
      ['things', 'base', connectionId, 'INCREMENTAL', 'PAUSED', 'SUCCESS'],
      'nobody has started its schedule',
    );
    assert.deepEqual(
      [one?.frequency, one?.recordCount, one?.latestResult, one?.checkpoint],
      ['every hour', { Thing: 1 }, { Thing: { added: 0, updated: 0, deleted: 0 } }, null],
    );
    const named = async (...names: (string | { name: string; variant: string })[]) =>
      (await client.syncStatus(key, names, connectionId)).syncs.length;
    assert.deepEqual(
      [await named('things'), await named({ name: 'things', variant: 'base' }), await named('none')],
      [1, 1, 0],
    );
    assert.equal((await client.syncStatus(key, ['things'])).syncs.length, 1, 'of all connections');
    assert.deepEqual(await refusal(client.syncStatus(key, '*', 'nobody')), [404, 'unknown_connection']);
  },

  async pauseSync(subject) {
    const { client, connectionId } = subject;
    await client.startSync(key, ['things'], connectionId);
    const answer: unknown = await client.pauseSync(key, ['things'], connectionId);
    assert.deepEqual((answer as { data: unknown }).data, { success: true });
    const sync = await statusOf(subject);
    assert.deepEqual([sync.status, sync.nextScheduledSyncAt], ['PAUSED', null]);
    assert.deepEqual(await refusal(client.pauseSync(key, ['none'], connectionId)), [400, 'no_syncs_found']);
  },

  async startSync(subject) {
    const { client, connectionId } = subject;
    await client.pauseSync(key, ['things'], connectionId);
    const answer: unknown = await client.startSync(key, ['things'], connectionId);
    assert.deepEqual((answer as { data: unknown }).data, { success: true });
    const { status, nextScheduledSyncAt } = await statusOf(subject);
    assert.deepEqual([status, nextScheduledSyncAt !== null], ['SUCCESS', true]);
    assert.deepEqual(await refusal(client.startSync(key, ['things'], 'nobody')), [404, 'unknown_connection']);
  },

  async updateSyncConnectionFrequency(subject) {
    const { client, connectionId } = subject;
    const change = (frequency: string | null) =>
      client.updateSyncConnectionFrequency(key, { name: 'things', variant: 'base' }, connectionId, frequency);
    for (const [given, told] of [
      ['every 2 hours', '2 hours'],
      ['15m', '15m'],
      ['every month', '30d'],
      ['every half day', '12h'],
    ] as const) {
      assert.deepEqual(await change(given), { frequency: told });
      const { frequency, nextScheduledSyncAt: next } = await statusOf(subject);
      assert.ok(frequency && next);
    }
    assert.equal((await statusOf(subject)).frequency, '12h');
    assert.deepEqual(await change(null), { frequency: 'every hour' }, 'what the function says');
    assert.deepEqual(await refusal(change('0 * * * *')), [400, 'invalid_body']);
    assert.deepEqual(await refusal(change('every 10 seconds')), [400, 'invalid_body']);
    const none = client.updateSyncConnectionFrequency(key, 'none', connectionId, 'every day');
    assert.deepEqual(await refusal(none), [400, 'unknown_sync']);
    const nobody = client.updateSyncConnectionFrequency(key, 'things', 'nobody', 'every day');
    assert.deepEqual(await refusal(nobody), [400, 'unknown_connection']);
  },

  async createSyncVariant({ client, connectionId }) {
    const at = { provider_config_key: key, connection_id: connectionId, name: 'things' };
    const made = await client.createSyncVariant({ ...at, variant: 'second' });
    assert.deepEqual(made, { id: made.id, name: 'things', variant: 'second' });
    assert.equal(typeof made.id, 'string');
    const { syncs } = await client.syncStatus(key, [{ name: 'things', variant: 'second' }], connectionId);
    assert.deepEqual(
      syncs.map(({ id }) => id),
      [made.id],
    );
    for (const [more, code] of [
      [{ variant: 'second' }, 'sync_variant_already_exists'],
      [{ variant: 'base' }, 'invalid_variant'],
      [{ variant: 'third', name: 'none' }, 'unknown_sync'],
      [{ variant: 'third', connection_id: 'nobody' }, 'unknown_connection'],
    ] as const) {
      const given = { ...at, ...more };
      assert.deepEqual(await refusal(client.createSyncVariant(given)), [400, code]);
    }
  },

  async deleteSyncVariant({ client, connectionId }) {
    const at = { provider_config_key: key, connection_id: connectionId, name: 'things' };
    assert.deepEqual(await client.deleteSyncVariant({ ...at, variant: 'second' }), { success: true });
    const { syncs } = await client.syncStatus(key, '*', connectionId);
    assert.deepEqual(
      syncs.map(({ name }) => name),
      ['things'],
    );
    assert.deepEqual(await refusal(client.deleteSyncVariant({ ...at, variant: 'second' })), [
      400,
      'unknown_sync',
    ]);
    assert.deepEqual(await refusal(client.deleteSyncVariant({ ...at, variant: 'base' })), [
      400,
      'invalid_variant',
    ]);
  },
};

async function save({ trellis, place }: NodeSubject, records: object[]): Promise<void> {
  const headers = { 'connection-id': place.connectionId, 'provider-config-key': key };
  const { status, text } = await trellis.call('POST', '/records', { headers, body: { model, records } });
  assert.equal(status, 200, text);
}

async function remove({ trellis, place }: NodeSubject, records: { id: number }[]): Promise<void> {
  const headers = { 'connection-id': place.connectionId, 'provider-config-key': key };
  const body = { model, ids: records.map(({ id }) => String(id)) };
  const { status, text } = await trellis.call('POST', '/records/delete', { headers, body });
  assert.equal(status, 200, text);
}

type Status = Awaited<ReturnType<Nango['syncStatus']>>['syncs'][number];

async function statusOf({ client, connectionId }: NodeSubject): Promise<Status> {
  const [sync] = (await client.syncStatus(key, ['things'], connectionId)).syncs;
  return sync!;
}

/** Until so many runs of the sync have ended well, and none is under way. */
async function ended({ trellis }: NodeSubject, runs: number): Promise<void> {
  for (let left = 400; left > 0; left--) {
    const { body } = await trellis.call('GET', '/functions/runs?function=things');
    const states = (body.runs as { state: string }[]).map(({ state }) => state);
    if (!states.includes('running') && !states.includes('waiting')) {
      const done = states.filter((state) => state === 'succeeded').length;
      if (done >= runs) return assert.equal(done, runs);
    }
    await pause(25);
  }
  throw new Error(`${runs} runs did not end`);
}
