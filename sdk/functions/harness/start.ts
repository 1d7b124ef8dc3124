/**
 * Calls a function: the harness of `server/functions/`, bundled to one text. It runs in the realm of the customer's code, with
 * the same rights, so the service checks each of its calls.
 */
import type { SyncContext } from '../context.ts';
import type { ActionDefinition, Definition, SyncDefinition } from '../definitions.ts';
import { ActionError, createContext, stopped } from './context.ts';
import { describe } from './describe.ts';
import type { About, Service } from './service.ts';
import { createSyncContext, isClosed } from './sync-context.ts';

type Call = {
  exported: unknown;
  /** `sync`, `webhook`, `action`, `onEvent`; `describe` returns the description of the function. */
  kind: string;
  input: unknown;
  about: unknown;
  service: Service;
};

export async function start({ exported, kind, input, about, service }: Call): Promise<unknown> {
  const definition = exported as Definition;
  if (definition === null || typeof definition !== 'object' || typeof definition.exec !== 'function') {
    throw new TypeError(
      'The default export is not the definition of a function: export the result of createSync, createAction or createOnEvent.',
    );
  }
  if (kind === 'describe') return describe(definition);
  const of = about as About;
  if (kind === 'sync') {
    const context = createSync(definition, service, of);
    if (!of.deletesByRun) return runSync(definition as SyncDefinition, context);
    const models = Object.keys((definition as SyncDefinition).models ?? {});
    return trackRun({ service, context, models }, () => runSync(definition as SyncDefinition, context));
  }
  if (kind === 'webhook') {
    const context = Object.assign(createSync(definition, service, of), refusedInWebhooks);
    await (definition as SyncDefinition).onWebhook?.(context, input);
    return null;
  }
  if (kind === 'action') return runAction(definition as ActionDefinition, createContext(service, of), input);
  await definition.exec(createContext(service, of) as never, undefined as never);
  return null;
}

function createSync(definition: Definition, service: Service, about: About) {
  return createSyncContext(service, about, (definition as SyncDefinition).models ?? {});
}

type Tracked = { service: Service; context: SyncContext; models: readonly string[] };

/**
 * Runs a sync whose code calls `deleteRecordsFromPreviousExecutions` and starts no delete tracking: each of its models has an
 * open tracking during the run, so that the call finds the records that this run has saved.
 *
 * A run that begins at a checkpoint continues the open tracking and starts none: otherwise the records that were saved before
 * the checkpoint would be deleted. A successful run without a checkpoint leaves no tracking open. After a successful run with a
 * checkpoint, the next run may be in the middle of the same list: a model whose end was called gets a new tracking for the
 * next run, and others keep theirs. A failed run leaves its trackings open for the run that continues.
 */
export async function trackRun<T>({ service, context, models }: Tracked, run: () => Promise<T>): Promise<T> {
  const hasCheckpoint = async () => (await context.getCheckpoint()) !== null;
  const open = async (those: Iterable<string>, of: { next: boolean }) => {
    for (const model of those) await service.call('trackDeletesStart', { model, ...of });
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
  else for (const model of models) await service.call('trackDeletesDrop', { model });
  return result;
}

/** An open delete tracking belongs to a run of the sync itself, which may be in the middle of its pages. */
const refusedInWebhooks = {
  async deleteRecordsFromPreviousExecutions(): Promise<never> {
    throw Object.assign(
      new Error('onWebhook deletes by batchDelete: it is told of a part of what there is.'),
      {
        code: 'no_delete_tracking',
      },
    );
  },
};

/** A run that must stop deletes nothing and does not succeed: the next one continues. */
async function runSync(
  { exec, models, trackDeletes }: SyncDefinition,
  context: ReturnType<typeof createSyncContext>,
): Promise<null> {
  const tracked = trackDeletes === true ? Object.keys(models ?? {}) : [];
  for (const model of tracked) await context.trackDeletesStart(model);
  await exec(context as never);
  if (context.signal.aborted) throw stopped();
  for (const model of tracked) {
    await context.trackDeletesEnd(model).catch((error: unknown) => {
      // The code has ended it.
      if (!isClosed(error)) throw error;
    });
  }
  return null;
}

async function runAction(
  { exec, input, output }: ActionDefinition,
  context: ReturnType<typeof createContext>,
  given: unknown,
): Promise<unknown> {
  let read = input?.safeParse(given);
  // JSON has no other value for an input of `z.void()`.
  if (read?.success === false && given === null && input?.safeParse(undefined).success)
    read = input.safeParse(undefined);
  if (read?.success === false)
    throw unfit('invalid_action_input', 'The input does not fit', read.error.issues);
  const answer = await exec(context as never, read === undefined ? given : read.data);
  const checked = output?.safeParse(answer);
  if (checked?.success === false)
    throw unfit('invalid_action_output', 'The output does not fit', checked.error.issues);
  return answer ?? null;
}

function unfit(type: string, message: string, issues: readonly { path: PropertyKey[]; message: string }[]) {
  const errors = issues.map(({ path, message: reason }) => ({ path: path.map(String), message: reason }));
  const [fault] = errors;
  const where = fault && ` at ${fault.path.join('.') || 'the top'}: ${fault.message}`;
  return new ActionError({ type, message: `${message}${where ?? ''}.`, errors });
}
