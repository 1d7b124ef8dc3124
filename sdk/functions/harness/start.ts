/**
 * Calls a function: the harness of `server/functions/`, bundled to one text and run beside the customer's code, with no
 * right that this does not have. Whatever it asks for, the service judges.
 */
import type { ActionDefinition, Definition, SyncDefinition } from '../definitions.ts';
import { ActionError } from './action-error.ts';
import { createContext } from './context.ts';
import { describe } from './describe.ts';
import type { About, Service } from './service.ts';
import { stopped } from './stopped.ts';
import { createSyncContext } from './sync-context.ts';

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
  if (kind === 'sync') return runSync(definition as SyncDefinition, createSync(definition, service, of));
  if (kind === 'webhook') {
    await (definition as SyncDefinition).onWebhook?.(createSync(definition, service, of), input);
    return null;
  }
  if (kind === 'action') return runAction(definition as ActionDefinition, createContext(service, of), input);
  await definition.exec(createContext(service, of) as never, undefined as never);
  return null;
}

function createSync(definition: Definition, service: Service, about: About) {
  return createSyncContext(service, about, (definition as SyncDefinition).models ?? {});
}

/** What was not reached when a run was told to stop is neither deleted nor done: the next one goes on. */
async function runSync(
  { exec, models, trackDeletes }: SyncDefinition,
  context: ReturnType<typeof createSyncContext>,
): Promise<null> {
  const tracked = trackDeletes === true ? Object.keys(models ?? {}) : [];
  for (const model of tracked) await context.trackDeletesStart(model);
  await exec(context as never);
  if (context.signal.aborted) throw stopped();
  for (const model of tracked) await context.trackDeletesEnd(model);
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
