import type { SyncContext } from '../context.ts';
import type { Models } from '../definitions.ts';
import { createContext, stopped } from './context.ts';
import type { About, Service } from './service.ts';

/** The maximum number of records of one call to the service. */
const maxRecords = 1000;
const maxIds = 100;
type WithId = { id: string };

/** The context of a sync: that of every function, and its records. */
export function createSyncContext(service: Service, about: About, models: Models): SyncContext {
  const call = async <T>(name: string, args: unknown): Promise<T> =>
    (await service.call(name, args)).value as T;
  const checked = createCheck(service, models);

  async function write(name: string, given: unknown, model: string): Promise<true> {
    // A delete needs only the IDs.
    const records = name === 'batchDelete' ? listOf(given).map(withIdAlone) : listOf(given);
    // One portion after the other: an answer means that the service accepts the next.
    for (let from = 0; from < records.length; from += maxRecords) {
      const portion = { model, records: records.slice(from, from + maxRecords) };
      await call(name, portion).catch((error: Refused) => {
        throw from === 0 ? error : placedAfter(from, error);
      });
    }
    return true;
  }

  async function* listRecords(model: string, options: { cursor?: string } = {}) {
    for (let cursor = options.cursor; ; ) {
      const page = await call<{ records: unknown[]; next_cursor: string | null }>('listRecords', {
        model,
        cursor,
      });
      yield* page.records;
      if (page.next_cursor === null) return;
      cursor = page.next_cursor;
    }
  }

  async function getRecordsByIds(ids: (string | number)[], model: string) {
    const found = new Map<string | number, unknown>();
    for (let from = 0; from < ids.length; from += maxIds) {
      const portion = ids.slice(from, from + maxIds);
      const records = await call<WithId[]>('getRecordsByIds', { ids: portion.map(String), model });
      const byId = new Map(records.map((record) => [record.id, record]));
      for (const id of portion) {
        const record = byId.get(String(id));
        if (record !== undefined) found.set(id, record);
      }
    }
    return found;
  }

  const end = async (model: string) => {
    // A run that must stop has not saved everything.
    if (service.signal.aborted) throw stopped();
    const ended = await call<{ deletedKeys: string[]; isPartial?: true } | null>('trackDeletesEnd', {
      model,
    });
    if (!ended?.isPartial) return ended as { deletedKeys: string[] };
    service.log(
      'warn',
      `Nothing of ${model} was deleted: this run began at a checkpoint, and what was read before it was not tracked. ` +
        'The checkpoint is cleared: the next run reads everything, and deletes.',
    );
    return { deletedKeys: [] };
  };
  const endOfRun = async (model: string) =>
    end(model).catch((error: unknown) => {
      if (!isClosed(error)) throw error;
      service.log(
        'warn',
        `Nothing of ${model} was deleted: what was saved before the checkpoint of this run was not tracked, or it was ` +
          'deleted already. The next run that begins without a checkpoint, or after one that succeeded, deletes.',
      );
      return { deletedKeys: [] };
    });
  const records = {
    lastSyncDate: about.lastSyncDate === undefined ? undefined : new Date(about.lastSyncDate),
    batchSave: (given: unknown, model: string) => write('batchSave', checked(given, model), model),
    batchUpdate: (given: unknown, model: string) => write('batchUpdate', given, model),
    batchDelete: (given: unknown, model: string) => write('batchDelete', given, model),
    trackDeletesStart: (model: string) => call('trackDeletesStart', { model }),
    trackDeletesEnd: end,
    deleteRecordsFromPreviousExecutions: about.deletesByRun ? endOfRun : end,
    getRecordsByIds,
    listRecords,
    schemaChanged: (model: string, changes: unknown) => call('schemaChanged', { model, changes }),
    setMergingStrategy: ({ strategy }: { strategy: string }, model: string) =>
      call('setMergingStrategy', { strategy, model }),
  };
  return Object.assign(createContext(service, about), records) as unknown as SyncContext;
}

/** The error of a call with invalid fields. */
type Refused = Error & { errors?: { message: string; path: string[] }[] };

/** The error of a portion, with the indexes of the whole list. */
function placedAfter(from: number, error: Refused): Refused {
  for (const { path } of error.errors ?? []) {
    const [list, at] = path;
    if (list !== 'records' || at === undefined) continue;
    const before = path.join('.');
    path[1] = String(Number(at) + from);
    error.message = error.message.replace(before, path.join('.'));
  }
  return error;
}

/** Whether the end of delete tracking failed because none is open. */
export function isClosed(error: unknown): boolean {
  return (error as { code?: unknown }).code === 'no_delete_tracking';
}

/** Logs the first invalid record of each model. It is saved nevertheless, unchanged. */
function createCheck(service: Service, models: Models) {
  const logged = new Set<string>();
  return (given: unknown, model: string): unknown => {
    const schema = Object.hasOwn(models, model) ? models[model] : undefined;
    if (schema === undefined || logged.has(model)) return given;
    for (const record of listOf(given)) {
      const read = schema.safeParse(record);
      if (read.success) continue;
      const [issue] = read.error.issues;
      const id = String((record as Partial<WithId> | null)?.id);
      service.log(
        'warn',
        `A record of ${model} does not fit its model (id ${id}): ${issue?.path.join('.')}: ${issue?.message}`,
      );
      logged.add(model);
      break;
    }
    return given;
  };
}

function withIdAlone(record: unknown): { id: unknown } {
  return { id: (record as Partial<WithId> | null | undefined)?.id };
}

function listOf(given: unknown): unknown[] {
  if (given === undefined || given === null) return [];
  if (Array.isArray(given)) return given;
  throw new TypeError('Records are given as a list.');
}
