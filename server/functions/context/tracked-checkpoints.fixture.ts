// A sync with delete tracking and checkpoints, run statement by statement against PostgreSQL, and a source whose items come and go.

import assert from 'node:assert/strict';
import { noActivity } from '../../activity/writer.ts';
import { brandNames } from '../../brand.ts';
import { AppError } from '../../errors.ts';
import { setDatasetSettings } from '../../records/datasets.ts';
import { allowMassDelete, endTracking, startTracking } from '../../records/write/track-deletes.ts';
import { type Claim, claimLost, claimWaiting } from '../runs/claims.ts';
import { queueRuns } from '../runs/queue.ts';
import { openRunsBench, syncOf } from '../runs/runs.fixture.ts';
import { settle } from '../runs/settle.ts';
import { lockSyncs, resetSyncs } from '../syncs/syncs.ts';
import { createContext } from './context.ts';
import type { ContextDeps } from './service-call.ts';

export type Bench = Awaited<ReturnType<typeof openRunsBench>>;

export async function openTrackedBench(): Promise<Bench> {
  const bench = await openRunsBench();
  await bench.deploy('rows', syncOf('', 'autoStart: false,'));
  return bench;
}

/** How the code of the sync orders its statements. */
export type Program = {
  /** `fresh`: only if there is no checkpoint. `late`: after the first page. `never`: no tracking at all. */
  start: 'first' | 'fresh' | 'late' | 'twice' | 'never';
  /** What becomes of the checkpoint: cleared after the end, before it, set to the first page after it or before it. */
  last: 'end-clear' | 'clear-end' | 'end-save' | 'save-end' | 'end';
  /** It saves a second model after the first, with checkpoints of their phases. */
  models: readonly string[];
};
export const bothOrders = ['end-clear', 'clear-end'] as const;

/** How an attempt is cut: its node is lost, or the code throws, or returns. */
type Cut = { after: number; by: 'lost' | 'threw' | 'returned' };

class Interrupted extends Error {}
type Call = (name: string, args?: object) => Promise<unknown>;
const pageItems = 2;

/** One connection with its sync; the guard of mass deletions hides a wrong deletion, so it may be off. */
export async function openTrackedSync(bench: Bench, program: Program, guard: 'on' | 'off') {
  const { db } = bench;
  const connectionId = crypto.randomUUID();
  const connection = await bench.connect(connectionId);
  const [made] = await db.query<{ id: number }>(
    'insert into sync (function_id, connection_id) select id, $1 from function returning id',
    [connection.id],
  );
  const syncId = made!.id;
  const models = ['Row', 'Other'];
  for (const model of models) {
    const name = { connection: connection.id, model, variant: 'base' };
    await setDatasetSettings(db, name, { massDeleteShare: guard === 'on' ? 0.4 : 1, massDeleteNumber: 2 });
  }
  const source = new Map(models.map((model) => [model, new Set<string>()]));
  /** Items that came back: none may come back while a list is being read. */
  const gone = new Map(models.map((model) => [model, new Set<string>()]));
  let created = 0;
  let deploys = 0;
  let current = program;
  /** Run whose node was lost. */
  let lost: Claim | undefined;
  const held = new Map<string, number>();
  const history: string[] = [];

  const deps = {
    db,
    vault: bench.one.vault,
    brand: brandNames('trellis'),
    reader: bench.one.reader,
    proxy: bench.one.proxy,
    activity: noActivity,
    baseUrl: 'http://localhost',
    webhookBaseUrl: 'http://localhost',
  } as unknown as ContextDeps;

  async function claim(): Promise<Claim> {
    if (lost !== undefined) {
      await db.query(`update run set lease_until = now() - interval '1 s' where id = $1`, [lost.id]);
      const [again] = await claimLost(db, { now: bench.now(), max: 1 });
      return again!;
    }
    await db.transaction(async (tx) => {
      await tx.query('select from sync where id = $1 for no key update', [syncId]);
      await queueRuns(tx, { syncIds: [syncId], at: bench.now() });
    });
    const { claims } = await claimWaiting(db, { now: bench.now(), max: 1, after: 0 });
    return claims[0]!;
  }

  function contextOf(of: Claim) {
    return createContext(deps, {
      right: of,
      environmentId: of.environmentId,
      environment: of.environment,
      functionId: of.function.id,
      functionName: of.function.name,
      versionId: of.versionId,
      isSync: true,
      integrationKey: of.connection.integrationKey,
      connectionId,
      connectionRow: connection.id,
      variant: 'base',
      models,
      priority: 'background' as const,
      isReadOnly: false,
      secrets: undefined as never,
      counts: {},
    });
  }

  /** What an end deleted is at the source no more. */
  function judge(model: string, deleted: readonly string[]): void {
    const alive = deleted.filter((id) => source.get(model)?.has(id));
    assert.deepEqual(alive, [], `live records of ${model} were deleted:\n${history.join('\n')}`);
  }

  async function exec(call: Call, { start, last, models: wanted }: Program): Promise<void> {
    const checkpoint = (await call('getCheckpoint')) as { phase: number; after: string } | null;
    const { phase, after } = checkpoint ?? { phase: 0, after: '' };
    const isFresh = phase === 0 && after === '';
    const begin = async (model: string) => call('trackDeletesStart', { model });
    const tracks = start !== 'never';
    if (start === 'first' || start === 'twice' || (start === 'fresh' && isFresh))
      for (const model of wanted) await begin(model);
    for (const [at, model] of wanted.entries()) {
      if (at >= phase) {
        let from = at === phase ? after : '';
        for (let page = 0; ; page += 1) {
          const ids = [...source.get(model)!]
            .filter((id) => id > from)
            .sort()
            .slice(0, pageItems);
          if (ids.length > 0) await call('batchSave', { model, records: ids.map((id) => ({ id })) });
          if (page === 0 && (start === 'late' || start === 'twice')) await begin(model);
          if (ids.length < pageItems) break;
          from = ids.at(-1)!;
          await call('saveCheckpoint', { checkpoint: { phase: at, after: from } });
        }
      }
      const isLast = at === wanted.length - 1;
      if (isLast && last === 'clear-end') await call('clearCheckpoint');
      if (isLast && last === 'save-end')
        await call('saveCheckpoint', { checkpoint: { phase: 0, after: '' } });
      if (tracks) await call('trackDeletesEnd', { model });
      if (!isLast) await call('saveCheckpoint', { checkpoint: { phase: at + 1, after: '' } });
    }
    if (last === 'end-clear') await call('clearCheckpoint');
    if (last === 'end-save') await call('saveCheckpoint', { checkpoint: { phase: 0, after: '' } });
  }

  const sync = {
    syncId,
    history,
    /** One attempt, cut after so many statements; how it ended. `between` is called before each statement. */
    async run(cut?: Cut, between?: (statement: number) => Promise<void>): Promise<string> {
      const claimed = await claim();
      const of = { ...claimed, versionId: claimed.versionId + deploys * 1_000_000 };
      history.push(`${lost ? 'resume' : 'run'} ${JSON.stringify(current)} ${JSON.stringify(cut ?? 'whole')}`);
      lost = undefined;
      const serve = contextOf(of);
      const signal = new AbortController().signal;
      let statement = 0;
      const call: Call = async (name, args) => {
        if (cut !== undefined && statement >= cut.after) throw new Interrupted();
        await between?.(statement);
        statement += 1;
        const { value } = await serve(name, args ?? {}, { signal } as never);
        history.push(`  ${name} ${JSON.stringify(args ?? '')} ${JSON.stringify(value)}`);
        if (name === 'trackDeletesEnd')
          judge((args as { model: string }).model, (value as { deletedKeys: string[] }).deletedKeys);
        return value;
      };
      const ending = await exec(call, current).then(
        () => 'succeeded',
        (error: unknown) => {
          if (error instanceof Interrupted) return cut?.by === 'returned' ? 'succeeded' : cut!.by;
          if (error instanceof AppError && error.code === 'mass_delete_held') {
            const { model, would_delete: count } = error.payload as { model: string; would_delete: number };
            assert.ok(error.message.includes(`"allow_mass_delete":{"${model}":${count}}`), error.message);
            held.set(model, count);
            return error.code;
          }
          if (error instanceof AppError && error.code === 'no_delete_tracking') return error.code;
          throw new Error(history.join('\n'), { cause: error });
        },
      );
      history.push(`  => ${ending}`);
      if (ending === 'lost') {
        lost = claimed;
        return ending;
      }
      const how =
        ending === 'succeeded'
          ? ({ state: 'succeeded', output: null } as const)
          : ({ state: 'failed', error: { code: ending, message: 'm' }, mayPass: false } as const);
      await settle(db, { claim: of, ending: how, now: bench.now(), random: 0 });
      return ending;
    },
    add(model: string, count: number): void {
      for (let n = 0; n < count; n += 1) {
        // Not in the order of creation: new items come before and behind the place that is read.
        created += 1;
        source.get(model)?.add(`i${(created * 37) % 1_000}-${created}`);
      }
    },
    remove(model: string, share: number): void {
      const there = [...source.get(model)!];
      for (const id of there.slice(0, Math.ceil(there.length * share))) {
        source.get(model)!.delete(id);
        gone.get(model)!.add(id);
      }
    },
    /** All that is gone comes back, unless a list is half read: nobody can see then that it was not always there. */
    async comeBack(): Promise<void> {
      const [half] = await db.query('select from function_checkpoint where connection_id = $1', [
        connection.id,
      ]);
      if (half !== undefined || lost !== undefined) return;
      history.push('come back');
      for (const [model, ids] of gone) {
        for (const id of ids) source.get(model)!.add(id);
        ids.clear();
      }
    },
    /** As `POST /sync/trigger` does it. */
    async allow(): Promise<void> {
      for (const [model, count] of held) {
        history.push(`allow ${model} ${count}`);
        await db
          .transaction((tx) =>
            allowMassDelete(tx, { connection: connection.id, model, variant: 'base', count }),
          )
          .catch((error: AppError) => assert.equal(error.code, 'no_delete_tracking'));
      }
      held.clear();
    },
    /** The end of the interface with `override`: deletes at once what the held run did not see. */
    async overrideNow(): Promise<void> {
      for (const model of held.keys()) {
        if ([...gone.get(model)!].length === 0) continue;
        history.push(`override ${model}`);
        const ended = await endTracking(db, {
          connection: connection.id,
          model,
          variant: 'base',
          override: 'mass_delete',
        }).catch((error: AppError) => assert.equal(error.code, 'no_delete_tracking'));
        if (ended) judge(model, ended.deletedKeys);
      }
      held.clear();
    },
    /** Another caller ends the tracking or starts one, by the interface: what it deletes is its own affair. */
    async other(model: string, does: 'start' | 'end'): Promise<void> {
      history.push(`  other ${does} ${model}`);
      held.delete(model);
      const name = { connection: connection.id, model, variant: 'base' };
      if (does === 'start') await startTracking(db, name);
      else
        await endTracking(db, { ...name, override: 'none' }).catch((error: AppError) =>
          assert.match(error.code, /^(no_delete_tracking|mass_delete_held)$/),
        );
    },
    async reset(): Promise<void> {
      history.push('reset');
      const place = { ...bench.place, connectionId };
      await db.transaction(async (tx) =>
        resetSyncs(tx, {
          syncs: await lockSyncs(tx, { ...place, wanted: [] }),
          records: 'kept',
          at: bench.now(),
        }),
      );
      lost = undefined;
    },
    deploy(next: Program): void {
      history.push('deploy');
      deploys += 1;
      current = next;
    },
    /** Live records that are gone at the source, and the other way round. */
    async differences(wanted: readonly string[]): Promise<string[]> {
      const rows = await db.query<{ model: string; id: string }>(
        `select dataset.model, record.external_id as id
         from record
         join dataset on dataset.id = record.dataset_id
         where dataset.connection = $1 and deleted_at is null`,
        [connection.id],
      );
      const stored = new Set(
        rows.filter(({ model }) => wanted.includes(model)).map(({ model, id }) => `${model}/${id}`),
      );
      const there = new Set(wanted.flatMap((model) => [...source.get(model)!].map((id) => `${model}/${id}`)));
      return [...stored.symmetricDifference(there)];
    },
    async end(): Promise<void> {
      await db.query('delete from run where sync_id = $1', [syncId]);
      await db.query('delete from sync where id = $1', [syncId]);
    },
  };
  return sync;
}
