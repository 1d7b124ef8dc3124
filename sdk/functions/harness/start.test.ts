import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import type { SyncContext } from '../context.ts';
import type { Service } from './service.ts';
import { start } from './start.ts';

/** What is asked of the service by a run in which the one model is saved and its deletion ended. */
async function asked(
  kind: 'sync' | 'webhook',
  {
    answers = {},
    deletesByRun,
    isLast = true,
  }: { answers?: object; deletesByRun: boolean; isLast?: boolean },
) {
  const names: string[] = [];
  const service: Service = {
    signal: new AbortController().signal,
    log: (level) => names.push(level),
    async call(name) {
      names.push(name);
      return { value: (answers as Record<string, unknown>)[name] ?? null };
    },
  };
  const exec = async (context: SyncContext) => {
    await context.batchSave([{ id: 'a' }], 'Row' as never);
    if (isLast)
      await context.deleteRecordsFromPreviousExecutions('Row' as never).catch(({ code }) => names.push(code));
  };
  const about = {
    connectionId: 'ada',
    providerConfigKey: 'api',
    provider: 'any',
    environmentName: 'dev',
    variant: 'base',
  };
  const exported = { type: 'sync', models: { Row: undefined }, exec, onWebhook: exec };
  await start({ exported, kind, input: {}, about: { ...about, deletesByRun }, service });
  return names;
}

test('a tracking is open around a run whose code begins none', async () => {
  const one = await asked('sync', { deletesByRun: true });
  assert.deepEqual(one, [
    'getCheckpoint',
    'trackDeletesStart',
    'batchSave',
    'trackDeletesEnd',
    'getCheckpoint',
    'trackDeletesDrop',
  ]);
  const behind = await asked('sync', { deletesByRun: true, answers: { getCheckpoint: { page: 1 } } });
  assert.deepEqual(behind, [
    'getCheckpoint',
    'batchSave',
    'trackDeletesEnd',
    'getCheckpoint',
    'trackDeletesStart',
  ]);
  // It may be in the middle of a list whose first pages were not tracked.
  const between = { deletesByRun: true, isLast: false, answers: { getCheckpoint: { page: 1 } } };
  assert.deepEqual(await asked('sync', between), ['getCheckpoint', 'batchSave', 'getCheckpoint']);
  assert.deepEqual(await asked('sync', { deletesByRun: false }), ['batchSave', 'trackDeletesEnd']);
});

test('a webhook does not end the tracking of a run in progress', async () => {
  assert.deepEqual(await asked('webhook', { deletesByRun: false }), ['batchSave', 'no_delete_tracking']);
});

test('an action without an input takes null, and a missing input stays missing for others', async () => {
  const service = {
    signal: new AbortController().signal,
    log: () => {},
    call: async () => ({ value: null }),
  };
  const about = {
    connectionId: 'ada',
    providerConfigKey: 'api',
    provider: 'any',
    environmentName: 'dev',
    variant: 'base',
  };
  const run = (schema: z.ZodType) => {
    const exported = {
      type: 'action',
      description: 'Returns its input.',
      input: schema,
      output: z.unknown(),
      exec: async (_: unknown, input: unknown) => input === undefined,
    };
    return start({ exported, kind: 'action', input: null, about, service });
  };
  assert.equal(await run(z.void()), true);
  assert.equal(await run(z.null()), false);
  await assert.rejects(run(z.object({})), /The input does not fit/);
});
