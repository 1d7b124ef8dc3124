/**
 * Calls a function: the harness of `server/functions/`, bundled to one text and run beside the customer's code, with no
 * right that this does not have. Whatever it asks for, the service judges.
 */
import type { ActionDefinition, Definition, SyncDefinition } from '../definitions.ts';
import { ActionError } from './action-error.ts';
import { createContext } from './context.ts';
import { describe } from './describe.ts';
import { trackRun } from './run-deletes.ts';
import type { About, Service } from './service.ts';
import { stopped } from './stopped.ts';
import { createSyncContext, isClosed } from './sync-context.ts';

type Call = {
  exported: unknown;
  /** `sync`, `webhook`, `action`, `onEvent`; `describe` answers what the function says of itself. */
  kind: string;
  input: unknown;
  about: unknown;
  service: Service;
};

export async function start({ exported, kind, input, about, service }: Call): Promise<unknown> {
  const definition = exported as Definition;
  if (definition === null || typeof definition !== 'object' || typeof definition.exec !== 'function') {
    throw new TypeError(
      'The default export is no function: it is to be what createSync, createAction or createOnEvent gives.',
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

/** A delete tracking that is open is that of the sync's own run, which may be in the middle of its pages. */
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

/** What was not reached when a run was told to stop is neither deleted nor done: the next one goes on. */
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
      // The code has ended it by itself.
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
  const read = input?.safeParse(given);
  if (read?.success === false)
    throw unfit('invalid_action_input', 'The input does not fit', read.error.issues);
  const answer = await exec(context as never, read?.data ?? given);
  const told = output?.safeParse(answer);
  if (told?.success === false)
    throw unfit('invalid_action_output', 'The output does not fit', told.error.issues);
  return answer ?? null;
}

function unfit(type: string, message: string, issues: readonly { path: PropertyKey[]; message: string }[]) {
  const errors = issues.map(({ path, message: reason }) => ({ path: path.map(String), message: reason }));
  const [fault] = errors;
  const where = fault && ` at ${fault.path.join('.') || 'the top'}: ${fault.message}`;
  return new ActionError({ type, message: `${message}${where ?? ''}.`, errors });
}
