/** Writers of datasets, each the only one of its own, and followers of their cursors. */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { pick, type Random, randomOf } from '../long/random.ts';
import type { WirePage, WireRecord } from '../support/records.ts';
import type { Calls, Outcome } from './calls.ts';
import { deleted, openModel, pruned, type State, saved, updated } from './record-model.ts';

const idCount = 400;
/** So that a node that stands still does not keep its callers from the others. */
export const giveUpMs = 10_000;

type Dataset = { model: string; headers: Record<string, string> };
export type RecordLoad = {
  /** Writes and follows until `isOver`; then reads on to the end. */
  run(isOver: () => boolean, pauseMs: number): Promise<void>;
  /** What is wrong at the end: records against what was acknowledged, and the follower against the records. */
  check(): Promise<string[]>;
  acknowledged: { saved: number; updated: number; deleted: number; pruned: number };
};

export function openRecordLoad(calls: Calls, { model: name, headers }: Dataset, seed: number): RecordLoad {
  const random = randomOf(seed);
  const model = openModel();
  const acknowledged = { saved: 0, updated: 0, deleted: 0, pruned: 0 };
  /** The cursor and action of the latest change of each record that the follower came upon. */
  const followed = new Map<string, string>();
  let version = 0;
  let prunedUntil: string | undefined;

  const write = (of: string, call: { method: string; path: string; body: object }) =>
    calls.make(of, { ...call, headers, body: { model: name, ...call.body } });

  async function save(): Promise<void> {
    version += 1;
    const ids = someIds(random, 20);
    const records = ids.map((id) => ({ id, version, part: 0, text: 'x'.repeat(200) }));
    const outcome = await write('save', { method: 'POST', path: '/records', body: { records } });
    apply(outcome, { ids, change: saved(version), count: 'saved' });
  }
  async function update(): Promise<void> {
    version += 1;
    const ids = someIds(random, 10);
    const records = ids.map((id) => ({ id, part: version }));
    const outcome = await write('update', { method: 'PATCH', path: '/records', body: { records } });
    apply(outcome, { ids, change: updated(version), count: 'updated' });
  }
  async function remove(): Promise<void> {
    const ids = someIds(random, 5);
    const outcome = await write('delete', { method: 'POST', path: '/records/delete', body: { ids } });
    apply(outcome, { ids, change: deleted, count: 'deleted' });
  }
  async function prune(): Promise<void> {
    const page = await list({ cursor: prunedUntil, limit: 10 + pick(random, 60) });
    const last = page?.records.at(-1)?._trellis_metadata.cursor;
    if (page === undefined || last === undefined) return;
    const ids = page.records.map(({ id }) => id);
    for (let hasMore = true; hasMore; ) {
      const outcome = await write('prune', {
        method: 'PATCH',
        path: '/records/prune',
        body: { until_cursor: last, limit: 40 },
      });
      hasMore = outcome.kind === 'done' && (outcome.body as { has_more: boolean }).has_more;
      // Only the last of these calls says that all of them are pruned.
      if (outcome.kind === 'done' && !hasMore) {
        apply(outcome, { ids, change: pruned, count: 'pruned' });
        prunedUntil = last;
      } else if (outcome.kind !== 'refused') for (const id of ids) model.unsure([id], pruned);
    }
  }

  function apply(
    outcome: Outcome,
    what: { ids: string[]; change: (state: State) => State; count: keyof typeof acknowledged },
  ): void {
    if (outcome.kind === 'done') {
      model.done(what.ids, what.change);
      acknowledged[what.count] += what.ids.length;
    } else if (outcome.kind === 'unknown') model.unsure(what.ids, what.change);
  }

  async function list(query: { cursor: string | undefined; limit: number }): Promise<WirePage | undefined> {
    const { cursor, limit } = query;
    const search = new URLSearchParams({ model: name, limit: String(limit), ...(cursor && { cursor }) });
    const outcome = await calls.make('list', {
      method: 'GET',
      path: `/records?${search}`,
      headers,
      giveUpMs,
    });
    return outcome.kind === 'done' ? (outcome.body as WirePage) : undefined;
  }

  /** One page on; undefined where none could be read. */
  let position: string | undefined;
  async function follow(): Promise<number | undefined> {
    const page = await list({ cursor: position, limit: 100 });
    if (page === undefined) return undefined;
    for (const record of page.records) followed.set(record.id, changeOf(record));
    position = page.records.at(-1)?._trellis_metadata.cursor ?? position;
    return page.records.length;
  }

  return {
    acknowledged,
    async run(isOver, pauseMs) {
      const acts = [save, save, save, update, remove, prune];
      const writing = async () => {
        while (!isOver()) {
          await acts[pick(random, acts.length)]!();
          await sleep(pick(random, pauseMs * 2));
        }
      };
      const following = async () => {
        while (!isOver()) {
          if ((await follow()) !== 100) await sleep(pauseMs * 2);
        }
      };
      await Promise.all([writing(), following()]);
      while ((await follow()) !== 0);
    },
    async check() {
      const path = `/records?model=${name}&limit=10000`;
      const page = (await calls.insist('list', { method: 'GET', path, headers })) as WirePage;
      assert.equal(page.next_cursor, null);
      const records = page.records;
      const missed = records.filter((record) => followed.get(record.id) !== changeOf(record));
      return [
        ...model.faults(new Map(records.map((record) => [record.id, stateOf(record)]))),
        ...missed.map(({ id }) => `${id}: the follower missed its latest change`),
      ].map((fault) => `${name}: ${fault}`);
    },
  };
}

function someIds(random: Random, max: number): string[] {
  return [...new Set(Array.from({ length: 1 + pick(random, max) }, () => `r${pick(random, idCount)}`))];
}

const changeOf = ({ _trellis_metadata: { cursor, last_action } }: WireRecord) => `${last_action} ${cursor}`;

function stateOf({ version, part, _trellis_metadata: metadata }: WireRecord): State {
  return {
    version: Number(version),
    part: Number(part),
    isDeleted: metadata.deleted_at !== null,
    isPruned: metadata.pruned_at !== null,
  };
}
