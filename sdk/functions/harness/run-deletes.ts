import type { SyncContext } from '../context.ts';
import type { Service } from './service.ts';

type Tracked = { service: Service; context: SyncContext; models: readonly string[] };

/**
 * Runs a sync whose code calls `deleteRecordsFromPreviousExecutions` and begins no delete tracking: one is open for each of
 * its models while it runs, so that the call finds what this run has saved.
 *
 * A run that begins at a checkpoint goes on with what is open and opens nothing: what was saved before the checkpoint
 * would count as not seen, and be deleted. A run that succeeds leaves none open where it leaves no checkpoint. Where it
 * does, the run that begins there may be in the middle of the same list: it finds one open where this run has come to the
 * list's end, by the call, and else what this run found. One that fails leaves it as it is, for the run that goes on.
 */
export async function trackRun<T>({ service, context, models }: Tracked, run: () => Promise<T>): Promise<T> {
  const hasCheckpoint = async () => (await context.getCheckpoint()) !== null;
  const open = async (those: Iterable<string>, of: { next: boolean }) => {
    for (const model of those) await service.ask('trackDeletesStart', { model, ...of });
  };
  const ended = new Set<string>();
  const end = context.deleteRecordsFromPreviousExecutions;
  context.deleteRecordsFromPreviousExecutions = async (model) => {
    ended.add(model);
    return end(model);
  };
  if (!(await hasCheckpoint())) await open(models, { next: false });
  const result = await run();
  if (await hasCheckpoint()) await open(ended, { next: true });
  else for (const model of models) await service.ask('trackDeletesDrop', { model });
  return result;
}
