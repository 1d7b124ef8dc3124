/**
 * The calls of a run to the service: `serve` of `runtime.ts` for one run of one connection.
 *
 * Owns: the names of the calls, and the schemas of their arguments. Connection, environment and variant are those of the run;
 * no argument names one. Each write first locks the run's row (`fence.ts`), so that a node that lost the run changes nothing
 * more. Neighbours: `context-records.ts`, `context-connection.ts`, `inner-proxy.ts`, `checkpoint.ts`, `locks.ts`.
 */
import { z } from 'zod';
import type { LiveConnection } from '../../connections/store/reader.ts';
import type { Queryable } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { type Overrides, overrideIn } from '../../proxy/rules.ts';
import type { Beginning } from '../../records/write/track-deletes.ts';
import { maxParsedValues, maxValues } from '../isolation/json-limits.ts';
import { LargeJson } from '../isolation/payload.ts';
import type { Serve } from '../isolation/run-order.ts';
import {
  type Coverage,
  checkpointInput,
  findCheckpoint,
  removeCheckpoint,
  resolveBeginning,
  saveCheckpoint,
} from './checkpoint.ts';
import { connectionCalls } from './context-connection.ts';
import { recordCalls, type Touched } from './context-records.ts';
import { fencedDb, holdRun } from './fence.ts';
import { acquireLock, releaseAllLocks, releaseLock } from './locks.ts';
import { outsideFetch } from './outside-fetch.ts';
import {
  type ContextDeps,
  type RunFacts,
  requireRow,
  type ServiceCall,
  serviceCall,
  streamingCall,
} from './service-call.ts';
import { schemaChangedCall, stateCalls } from './state.ts';
import { storedRecordsCall } from './stored-records.ts';

/** The maximum number of values in the arguments of a call: a schema takes up to 20 µs for an invalid value. */
const maxValuesOfCall = 5_000;
/** Calls with a higher maximum. */
const maxValuesByCall: ReadonlyMap<string, number> = new Map([
  ['batchSave', maxValues],
  ['batchUpdate', maxValues],
  ['setMetadata', maxParsedValues],
  ['updateMetadata', maxParsedValues],
  ['schemaChanged', 10_000],
]);
/** Calls whose arguments may be a `LargeJson`. */
const takesLarge: ReadonlySet<string> = new Set(['batchSave', 'batchUpdate']);

const lockKey = z
  .string()
  .min(1)
  .max(255)
  .refine((key) => !key.includes('\0'), 'contains a NUL character');
const maxLockMs = 24 * 3_600_000;
const header = z.string().max(16_384);

export function createContext(deps: ContextDeps, facts: RunFacts): Serve {
  const { db, reader, proxy } = deps;
  const { right, environmentId, functionId, variant } = facts;
  const fenced = fencedDb(db, right);
  const place = { environmentId, integrationKey: facts.integrationKey, connectionId: facts.connectionId };
  const connection = async (): Promise<LiveConnection> =>
    requireRow(await reader.get(place), facts.connectionRow);
  const hasModels = facts.models.length > 0;
  const ofRun = { environmentId, runId: right.id };
  /** The version of the checkpoint that this run read or wrote last. After a write of another run, the next save conflicts. */
  let checkpointVersion: number | undefined;

  async function checkpointPlace() {
    const { id, dataKey } = await connection();
    return { at: { connectionId: id, functionId, variant }, dataKey };
  }
  const touched: Touched = { started: new Set(), reads: new Map() };
  let begun: Promise<Beginning> | undefined;
  /** From the checkpoint before this run's first access to it. */
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

  const calls = new Map<string, ServiceCall>([
    serviceCall('getCheckpoint', z.unknown(), async () => {
      if (hasModels) await beginning();
      const { value, version } = await findCheckpoint(db, await checkpointPlace());
      checkpointVersion = version;
      return value ?? null;
    }),
    serviceCall('saveCheckpoint', z.object({ checkpoint: checkpointInput }), async ({ checkpoint }) => {
      const read = { runId: right.id, coverage: await coverage() };
      const version = await knownVersion();
      checkpointVersion = await saveCheckpoint(fenced, {
        ...(await checkpointPlace()),
        ...read,
        value: checkpoint,
        version,
      });
      return null;
    }),
    serviceCall('clearCheckpoint', z.unknown(), async () => {
      if (hasModels) await beginning();
      await fenced.transaction(forgetCheckpoint);
      return null;
    }),
    serviceCall(
      'tryAcquireLock',
      z.object({ key: lockKey, ttlMs: z.number().min(1).max(maxLockMs) }),
      (lock) => fenced.transaction((tx) => acquireLock(tx, { ...ofRun, ...lock })),
    ),
    serviceCall('releaseLock', z.object({ key: lockKey }), ({ key }) =>
      fenced.transaction((tx) => releaseLock(tx, { ...ofRun, key })),
    ),
    serviceCall('releaseAllLocks', z.unknown(), async () => {
      await fenced.transaction((tx) => releaseAllLocks(tx, right.id));
      return null;
    }),
    ...connectionCalls(deps, { fenced, place, connection, facts }),
    ...recordCalls(deps, { fenced, connection, facts, touched, beginning, forgetCheckpoint }),
    ...stateCalls({ db, fenced, connection, facts }),
    schemaChangedCall({ fenced, connection, facts }),
    storedRecordsCall(deps, { connection }),
    streamingCall('proxy', proxyArgs, async (call, { signal, body }) => {
      if (facts.isReadOnly) {
        const { overrides } = (await connection()).integration.provider.api;
        requireReading({ ...call, address: call.endpoint }, overrides);
      }
      // Refuses a write at the provider if the run is already lost.
      const admit = async () => {
        if (call.method !== 'GET') await db.transaction((tx) => holdRun(tx, right));
      };
      const answer = await proxy.call({ ...place, ...facts }, { ...call, body, signal, admit });
      const { body: answered, ...value } = answer;
      return { value, body: answered };
    }),
    streamingCall('uncontrolledFetch', fetchArgs, async (call, { signal, body }) => {
      if (facts.isReadOnly) requireReading({ ...call, address: call.url });
      const answer = await outsideFetch(deps.outbound.fetchWhole, { ...call, body, signal });
      const { body: answered, ...value } = answer;
      return { value, body: answered };
    }),
  ]);

  return async (name, args, call) => {
    const work = calls.get(name);
    if (work === undefined)
      throw new AppError('not_found', `The context has no call "${name.slice(0, 100)}".`);
    if (facts.isReadOnly && writingCalls.has(name)) throw refusal(`${name} is not allowed`);
    const max = maxValuesByCall.get(name) ?? maxValuesOfCall;
    if (call.values > max)
      throw new AppError(
        'invalid_body',
        `The arguments of ${name} have more than ${max.toLocaleString('en')} values.`,
      );
    if (args instanceof LargeJson && !takesLarge.has(name)) {
      const [bytes, values] = [args.bytes.length, args.values].map((count) => count.toLocaleString('en'));
      const message = `The arguments of ${name} are too large: ${bytes} bytes with ${values} values.`;
      throw new AppError('invalid_body', message);
    }
    return work(args, call);
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

type OutgoingCall = {
  method: string;
  /** With or without a query. */
  address: string;
  query?: string | undefined;
  headers: Record<string, string>;
};

/** Calls that change state of the service that outlives the run. An action that is declared read-only may not make them. */
const writingCalls: ReadonlySet<string> = new Set(['setMetadata', 'updateMetadata', 'saveState']);

/**
 * Throws `action_is_read_only` unless the request is a GET or a HEAD for the API too. `also` are the API's own ways to override
 * the method. Callers without the right to write may call read-only actions, so the service enforces the declaration.
 */
function requireReading(
  { method, address, query = '', headers }: OutgoingCall,
  also?: Overrides | undefined,
): void {
  if (method !== 'GET' && method !== 'HEAD') throw refusal(`${method.slice(0, 20)} is not allowed`);
  const queries = [address.split('?').slice(1).join('?'), query].filter((part) => part !== '').join('&');
  const override = overrideIn(Object.entries(headers).flat(), { query: queries, also });
  if (override !== undefined)
    throw refusal(`"${override.slice(0, 100)}" could change the method of the call`);
}

function refusal(why: string): AppError {
  return new AppError('action_is_read_only', `The action is read-only: ${why}.`);
}
