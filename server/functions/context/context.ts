/**
 * What a run may ask of the service: `serve` of `runtime.ts` for one run of one connection.
 *
 * Owns: which names there are, and what each may be given. Whose connection, environment and variant it is, is the run's;
 * no argument names one. Every write holds the run's right first (`fence.ts`), so that a node which lost the run changes
 * nothing any more. Neighbours: `context-records.ts`, `context-connection.ts`, `inner-proxy.ts`, `checkpoint.ts`, `locks.ts`.
 */
import { z } from 'zod';
import type { Brand } from '../../brand.ts';
import type { CredentialSource } from '../../connections/credentials.ts';
import type { ConnectionReader, LiveConnection } from '../../connections/reader.ts';
import type { Db, Queryable } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { Outbound } from '../../outbound.ts';
import { type Overrides, overrideIn } from '../../proxy/overrides.ts';
import type { Beginning } from '../../records/track-deletes.ts';
import type { Vault } from '../../vault.ts';
import { maxParsedValues, maxValues } from '../isolation/json-limits.ts';
import { LargeJson } from '../isolation/payload.ts';
import type { Answer, Asked, Serve } from '../isolation/runtime.ts';
import {
  type Coverage,
  checkpointInput,
  findCheckpoint,
  removeCheckpoint,
  resolveBeginning,
  saveCheckpoint,
} from './checkpoint.ts';
import { connectionAsks } from './context-connection.ts';
import { recordAsks, type Touched } from './context-records.ts';
import { fencedDb, holdRun, type Right } from './fence.ts';
import type { InnerProxy } from './inner-proxy.ts';
import { acquireLock, releaseAllLocks, releaseLock } from './locks.ts';
import { outsideFetch } from './outside-fetch.ts';
import type { RunCounts } from './run-counts.ts';
import type { Secrets } from './secrets.ts';
import { schemaChangedAsk, stateAsks } from './state.ts';
import { storedRecordsAsk } from './stored-records.ts';

export type ContextDeps = {
  db: Db;
  vault: Vault;
  brand: Brand;
  baseUrl: string;
  reader: ConnectionReader;
  credentials: Pick<CredentialSource, 'fresh' | 'refreshedLiving'>;
  outbound: Pick<Outbound, 'fetchWhole'>;
  proxy: InnerProxy;
};

/** What a context is made for. */
export type RunFacts = {
  right: Right;
  environmentId: number;
  environment: string;
  functionId: number;
  functionName: string;
  /** Of the function: the row. */
  versionId: number;
  /** A run of this kind reads its list from the checkpoint on; others may run beside it. */
  isSync: boolean;
  integrationKey: string;
  connectionId: string;
  /** The connection's row: another one of the same ID is another account. `noRow` before it has one. */
  connectionRow: number;
  variant: string;
  /** Names of the models that it may save; none where it is no sync. */
  models: readonly string[];
  /** Who waits for it. */
  priority: 'background' | 'interactive';
  /** It is an action that says that it changes nothing. */
  isReadOnly: boolean;
  /** Filled with what the run is told in confidence. */
  secrets: Secrets;
  /** Filled as records are saved. */
  counts: RunCounts;
};

/** Of one ask: a schema takes up to 20 µs for a value that does not fit. */
const maxValuesOfAsk = 5_000;
/** Asks that take more. */
const maxValuesByAsk: ReadonlyMap<string, number> = new Map([
  ['batchSave', maxValues],
  ['batchUpdate', maxValues],
  ['setMetadata', maxParsedValues],
  ['updateMetadata', maxParsedValues],
  ['schemaChanged', 10_000],
]);
/** Asks whose arguments may be a `LargeJson`. */
const takesLarge: ReadonlySet<string> = new Set(['batchSave', 'batchUpdate']);

/** One name: what it takes, and what it does. */
export type Ask = (args: unknown, asked: Asked) => Promise<Answer>;

/** An ask whose arguments are read by a schema. Throws `invalid_body` that names the call and the field. */
export function ask<S extends z.ZodType>(
  name: string,
  schema: S,
  answer: (args: z.output<S>, asked: Asked) => Promise<unknown>,
): [string, Ask] {
  const work: Ask = async (args, asked) => {
    const read = schema.safeParse(args ?? {});
    if (!read.success) throw unfit(name, read.error.issues);
    return { value: await answer(read.data, asked) };
  };
  return [name, work];
}

/** Throws `invalid_body` for arguments that are too large to be read, which no call but those of records needs. */
function requireSmall(name: string, args: unknown): void {
  if (!(args instanceof LargeJson)) return;
  throw new AppError('invalid_body', `What was given to ${name} is too large: ${sizeOf(args)}.`);
}

function sizeOf({ bytes, values }: LargeJson): string {
  return `${bytes.length.toLocaleString('en')} bytes with ${values.toLocaleString('en')} values`;
}

export function unfit(name: string, issues: readonly z.core.$ZodIssue[]): AppError {
  const errors = issues.map(({ code, message, path }) => ({
    code: code ?? 'custom',
    message,
    path: path.map(String),
  }));
  const [fault] = errors;
  const where = fault && ` (${fault.path.join('.') || 'the argument'}: ${fault.message})`;
  return new AppError('invalid_body', `What was given to ${name} does not fit${where ?? ''}.`, { errors });
}

const lockKey = z
  .string()
  .min(1)
  .max(255)
  .refine((key) => !key.includes('\0'), 'holds a NUL character');
const maxLockMs = 24 * 3_600_000;
const header = z.string().max(16_384);

/** Of a connection that is not stored yet. */
export const noRow = 0;

/** Throws `unknown_connection` where an ID stands for another connection by now. */
export function requireRow(found: LiveConnection, row: number): LiveConnection {
  if (row !== noRow && found.id !== row) throw new AppError('unknown_connection');
  return found;
}

export function createContext(deps: ContextDeps, facts: RunFacts): Serve {
  const { db, reader, proxy } = deps;
  const { right, environmentId, functionId, variant } = facts;
  const fenced = fencedDb(db, right);
  const place = { environmentId, integrationKey: facts.integrationKey, connectionId: facts.connectionId };
  const connection = async (): Promise<LiveConnection> =>
    requireRow(await reader.get(place), facts.connectionRow);
  const hasModels = facts.models.length > 0;
  const ofRun = { environmentId, runId: right.id };
  /** Version of the checkpoint that this run read or wrote last. A write by any other run makes the next save a conflict. */
  let checkpointVersion: number | undefined;

  async function checkpointPlace() {
    const { id, dataKey } = await connection();
    return { at: { connectionId: id, functionId, variant }, dataKey };
  }
  const touched: Touched = { started: new Set(), reads: new Map() };
  let begun: Promise<Beginning> | undefined;
  /** As the checkpoint was before this run touched it. */
  function beginning(): Promise<Beginning> {
    begun ??= checkpointPlace().then(({ at }) =>
      resolveBeginning(fenced, { at, versionId: facts.versionId, stale: facts.isSync ? 'removed' : 'kept' }),
    );
    return begun;
  }
  async function coverage(): Promise<Coverage> {
    const from = hasModels ? await beginning() : 'start';
    const models = [...touched.reads.keys()];
    const own = models
      .filter((model) => from === 'start' || touched.started.has(model))
      .flatMap((model) => touched.reads.get(model)?.tracking ?? []);
    if (from === 'start') return { own, trackings: [], touched: models };
    return { own, trackings: from.trackings, touched: models.length > 0 ? models : undefined };
  }
  async function forgetCheckpoint(q: Queryable): Promise<void> {
    const { at } = await checkpointPlace();
    await removeCheckpoint(q, at);
    checkpointVersion = 0;
  }
  async function knownVersion(): Promise<number> {
    checkpointVersion ??= (await findCheckpoint(db, await checkpointPlace())).version;
    return checkpointVersion;
  }

  const asks = new Map<string, Ask>([
    ask('getCheckpoint', z.unknown(), async () => {
      if (hasModels) await beginning();
      const { value, version } = await findCheckpoint(db, await checkpointPlace());
      checkpointVersion = version;
      return value ?? null;
    }),
    ask('saveCheckpoint', z.object({ checkpoint: checkpointInput }), async ({ checkpoint }) => {
      const read = { runId: right.id, coverage: await coverage() };
      const version = await knownVersion();
      checkpointVersion = await saveCheckpoint(fenced, {
        ...(await checkpointPlace()),
        ...{ ...read, value: checkpoint, version },
      });
      return null;
    }),
    ask('clearCheckpoint', z.unknown(), async () => {
      if (hasModels) await beginning();
      await fenced.transaction(forgetCheckpoint);
      return null;
    }),
    ask('tryAcquireLock', z.object({ key: lockKey, ttlMs: z.number().min(1).max(maxLockMs) }), (lock) =>
      fenced.transaction((tx) => acquireLock(tx, { ...ofRun, ...lock })),
    ),
    ask('releaseLock', z.object({ key: lockKey }), ({ key }) =>
      fenced.transaction((tx) => releaseLock(tx, { ...ofRun, key })),
    ),
    ask('releaseAllLocks', z.unknown(), async () => {
      await fenced.transaction((tx) => releaseAllLocks(tx, right.id));
      return null;
    }),
    ...connectionAsks(deps, { fenced, place, connection, facts }),
    ...recordAsks(deps, { fenced, connection, facts, touched, beginning, forgetCheckpoint }),
    ...stateAsks({ db, fenced, connection, facts }),
    schemaChangedAsk({ fenced, connection, facts }),
    storedRecordsAsk(deps, { connection }),
  ]);
  asks.set('proxy', async (args, { signal, body }) => {
    const read = proxyArgs.safeParse(args);
    if (!read.success) throw unfit('proxy', read.error.issues);
    const { data: call } = read;
    if (facts.isReadOnly) {
      const { overrides } = (await connection()).integration.provider.api;
      requireReading({ ...call, address: call.endpoint }, overrides);
    }
    const { body: answered, ...head } = await proxy.call(
      { ...place, ...facts },
      {
        ...call,
        ...{ body, signal },
        // A write at the provider is refused as one here is, so far as that can be told before it is made.
        async admit() {
          if (call.method !== 'GET') await db.transaction((tx) => holdRun(tx, right));
        },
      },
    );
    return { value: head, body: answered };
  });
  asks.set('uncontrolledFetch', async (args, { signal, body }) => {
    const read = fetchArgs.safeParse(args);
    if (!read.success) throw unfit('uncontrolledFetch', read.error.issues);
    if (facts.isReadOnly) requireReading({ ...read.data, address: read.data.url });
    const { body: answered, ...head } = await outsideFetch(deps.outbound.fetchWhole, {
      ...read.data,
      ...{ body, signal },
    });
    return { value: head, body: answered };
  });

  return async (name, args, asked) => {
    const work = asks.get(name);
    if (work === undefined)
      throw new AppError('not_found', `There is nothing called "${name.slice(0, 100)}" to ask for.`);
    if (facts.isReadOnly) requireReadingAsk(name);
    const max = maxValuesByAsk.get(name) ?? maxValuesOfAsk;
    if (asked.values > max)
      throw new AppError(
        'invalid_body',
        `What was given to ${name} has more than ${max.toLocaleString('en')} values.`,
      );
    if (!takesLarge.has(name)) requireSmall(name, args);
    return work(args, asked);
  };
}

const proxyArgs = z.object({
  method: z.string().regex(/^[A-Z]{1,20}$/),
  endpoint: z.string().min(1).max(65_536),
  query: z.string().max(65_536).default(''),
  headers: z
    .record(
      z
        .string()
        .max(255)
        .regex(/^[!#$%&'*+.^_`|~0-9a-z-]+$/i),
      header,
    )
    .default({}),
  retries: z.int().min(0).max(10).optional(),
  retryOn: z.array(z.int().min(400).max(599)).max(100).optional(),
  baseUrlOverride: z.string().max(8_192).optional(),
  decompress: z.boolean().optional(),
});

const fetchArgs = z.object({
  url: z.url({ protocol: /^https?$/ }),
  method: z.string().regex(/^[A-Z]{1,20}$/i),
  headers: z.record(z.string().max(255), header),
});

/**
 * What an action that is authored `readOnly: true` may do: it reads, whatever its input talks it into. Callers that may not
 * write are let in by that word, so the service holds the code to it.
 */

type OutgoingCall = {
  method: string;
  /** With or without a query. */
  address: string;
  query?: string | undefined;
  headers: Record<string, string>;
};

/** Asks that change something of ours which outlives the run. */
const writingAsks: ReadonlySet<string> = new Set(['setMetadata', 'updateMetadata', 'saveState']);

/** Throws `action_is_read_only` unless the call can be nothing but a GET or a HEAD. `also` are the API's own ways to say another method. */
function requireReading(
  { method, address, query = '', headers }: OutgoingCall,
  also?: Overrides | undefined,
): void {
  if (method !== 'GET' && method !== 'HEAD') throw refusal(`${method.slice(0, 20)} is refused`);
  const asked = [address.split('?').slice(1).join('?'), query].filter((part) => part !== '').join('&');
  const override = overrideIn(Object.entries(headers).flat(), { query: asked, also });
  if (override !== undefined) throw refusal(`"${override.slice(0, 100)}" could make the call another one`);
}

/** Throws `action_is_read_only` where the ask writes. */
function requireReadingAsk(name: string): void {
  if (writingAsks.has(name)) throw refusal(`${name} is refused`);
}

function refusal(why: string): AppError {
  return new AppError('action_is_read_only', `The action is read-only: ${why}.`);
}
