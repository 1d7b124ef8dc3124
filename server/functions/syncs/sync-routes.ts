/** Routes for syncs: trigger, pause, start, status, frequency, variants. */
import { z } from 'zod';
import { writeAudit } from '../../activity/audit.ts';
import { connectionId } from '../../connections/routes/wire.ts';
import type { ConnectionReader } from '../../connections/store/reader.ts';
import type { Db, Tx } from '../../db/pool.ts';
import { AppError, fieldError } from '../../errors.ts';
import { actorOf, type Caller } from '../../http/auth/caller.ts';
import { connectionErrors, type RouteError } from '../../http/openapi/describe.ts';
import { nameSchemas, success } from '../../http/openapi/schema-names.ts';
import type { App } from '../../http/server.ts';
import { text } from '../../http/text.ts';
import { integrationKey } from '../../integrations/wire.ts';
import type { Vault } from '../../vault.ts';
import { functionName } from '../deploys/definition.ts';
import { readFrequency } from '../deploys/frequency.ts';
import { queueRuns } from '../runs/queue.ts';
import { syncStatuses, syncStatusWire } from './sync-status.ts';
import {
  addVariant,
  allowMassDeletes,
  lockSyncs,
  makeBaseSyncs,
  pauseSyncs,
  removeVariant,
  requirePlace,
  resetSyncs,
  type SyncName,
  type SyncPlace,
  setFrequency,
  startSyncs,
} from './syncs.ts';

/** `rows`, `rows::a-variant`, or an object with both. */
const syncName = z
  .union([
    z.string().transform((given) => {
      const [name = '', ...variant] = given.split('::');
      return { name, variant: variant.length === 0 ? undefined : variant.join('::') };
    }),
    z.strictObject({ name: z.string(), variant: z.string().optional() }),
  ])
  .transform(({ name, variant }) => ({ name, variant: variant ?? 'base' }))
  .pipe(z.object({ name: functionName, variant: functionName }));
const opts = z.strictObject({ reset: z.boolean().optional(), emptyCache: z.boolean().optional() });
/** By model: the maximum number of records that the next end of its delete tracking may delete. */
const allowances = z
  .record(z.string().min(1).max(255), z.int().min(1).max(Number.MAX_SAFE_INTEGER))
  .refine((given) => Object.keys(given).length > 0, 'names no model');

type SyncRoutesDeps = {
  db: Db;
  vault: Vault;
  reader: Pick<ConnectionReader, 'get'>;
  now: () => Date;
  /** Makes this node look for due runs immediately. */
  poke: () => void;
  /** Throws if functions are turned off. */
  open: () => Promise<void>;
};

const place = {
  provider_config_key: integrationKey.optional(),
  connection_id: connectionId.optional(),
};
const placeAndSyncs = { ...place, syncs: z.array(syncName).max(256) };
/** Official clients may send the place in headers. */
const placeHeaders = z.looseObject({
  'provider-config-key': integrationKey.optional(),
  'connection-id': connectionId.optional(),
});
/** Errors of routes for one connection, or for all connections, of an integration. */
const syncErrors = [
  'functions_off',
  'missing_provider_config_key',
  { code: 'unknown_provider_config', status: 400 },
  { code: 'unknown_connection', status: 404 },
  'no_syncs_found',
  'unknown_sync',
] as const satisfies readonly RouteError[];
const done = { 200: success };
const ofVariant = z.object({ name: functionName, variant: functionName });
const variantBody = z.strictObject({ provider_config_key: integrationKey, connection_id: connectionId });
nameSchemas({ ConnectionPlace: variantBody, SyncName: syncName });

export function syncRoutes(app: App, { db, vault, reader, now, poke, open }: SyncRoutesDeps): void {
  const read = { config: { access: { by: 'key', scope: 'functions:read' } }, preParsing: open } as const;
  const write = { config: { access: { by: 'key', scope: 'functions:write' } }, preParsing: open } as const;

  app.post(
    '/functions/syncs/trigger',
    {
      ...write,
      schema: {
        operationId: 'triggerSyncs',
        summary: 'Run syncs now',
        description:
          'A waiting sync becomes due now. A running sync continues, and runs once more afterwards. Without `syncs`, the ' +
          'call applies to all syncs of the integration; without `connection_id`, to all connections. `reset` first ends ' +
          'the current run and removes the checkpoint, the delete tracking and the last success; with `emptyCache`, also ' +
          'the records. `allow_mass_delete` allows a held mass deletion once: for each model, the maximum number of ' +
          'records, as in the error `mass_delete_held`. The request must then name one sync and one connection.',
        errors: [...syncErrors, 'no_delete_tracking'],
        headers: placeHeaders,
        example: {
          body: {
            integration_id: 'google-sheet',
            connection_id: 'ada-sheets',
            syncs: ['rows'],
            opts: { reset: true },
          },
        },
        body: z.strictObject({
          ...placeAndSyncs,
          opts: opts.optional(),
          sync_mode: z.enum(['incremental', 'full_refresh', 'full_refresh_and_clear_cache']).optional(),
          full_resync: z.boolean().optional(),
          allow_mass_delete: allowances.optional(),
        }),
        response: done,
      },
    },
    async ({ body, headers, caller }) => {
      const reset = resetOf(body);
      const { allow_mass_delete: allowed } = body;
      const at = now();
      const syncs = { place: placeOf(caller, body, headers), wanted: body.syncs };
      if (allowed !== undefined) requireOneSync(syncs, reset);
      await db.transaction(async (tx) => {
        const locked = await syncsOf(tx, syncs);
        if (allowed !== undefined) {
          await allowMassDeletes(tx, { sync: locked[0]!, allowed });
          const models = Object.entries(allowed).map(([model, count]) => `${model}: ${count}`);
          const details = { models: models.join(', ') };
          await audit(tx, caller, { ...syncs, action: 'sync.mass_delete_allowed', details });
        }
        if (reset !== undefined) {
          await resetSyncs(tx, { syncs: locked, records: reset, at });
          await audit(tx, caller, { ...syncs, action: 'sync.reset', details: { records: reset } });
        }
        await queueRuns(tx, { syncIds: locked.map(({ id }) => id), at });
      });
      poke();
      return { success: true as const };
    },
  );

  changeStateRoute('/functions/syncs/pause', {
    action: 'sync.paused',
    change: pauseSyncs,
    operationId: 'pauseSyncs',
    summary: 'Pause syncs',
    description:
      'A current run continues to its end. Afterwards no run starts until the syncs are started again.',
  });
  changeStateRoute('/functions/syncs/start', {
    action: 'sync.started',
    change: startSyncs,
    operationId: 'startSyncs',
    summary: 'Start syncs',
    description: 'They run at their next scheduled time.',
  });

  app.get(
    '/functions/syncs/status',
    {
      ...read,
      schema: {
        operationId: 'getSyncStatus',
        list: { items: 'syncs', by: 'whole' },
        summary: 'Get the status of syncs',
        description:
          'For one connection, or for all connections of the integration: state, last run, next run, checkpoint.',
        errors: syncErrors,
        headers: placeHeaders,
        querystring: z.strictObject({
          ...place,
          /** `*`, or names separated by commas. */
          syncs: text({ min: 1, max: 100_000 }),
        }),
        response: { 200: z.object({ syncs: z.array(syncStatusWire) }) },
      },
    },
    async ({ query, headers, caller }) => {
      const at = placeOf(caller, query, headers);
      await requirePlace(db, { ...at, names: [] }).catch((error: unknown) => {
        // An integration without syncs has an empty list.
        if (!(error instanceof AppError && error.code === 'no_syncs_found')) throw error;
      });
      return {
        syncs: await syncStatuses({ db, vault, reader, now }, { ...at, wanted: wantedOf(query.syncs) }),
      };
    },
  );

  app.put(
    '/functions/syncs/frequency',
    {
      ...write,
      schema: {
        operationId: 'changeSyncFrequency',
        summary: 'Change how often a sync runs for a connection',
        description: 'For example `every 5 minutes`; null restores the frequency of the function.',
        errors: [...connectionErrors, ...syncErrors],
        body: z.strictObject({
          sync_name: functionName,
          sync_variant: functionName.default('base'),
          provider_config_key: integrationKey,
          connection_id: connectionId,
          frequency: text({ min: 1, max: 100 }).nullable(),
        }),
        response: { 200: z.object({ frequency: z.string() }) },
      },
    },
    async ({ body, caller }) => {
      const given = body.frequency === null ? null : readFrequency(body.frequency);
      if (given !== null && 'fault' in given) throw fieldError('invalid_body', ['frequency'], given.fault);
      const at = await onePlace(caller, body);
      const wanted = { name: body.sync_name, variant: body.sync_variant };
      await db.transaction(async (tx) => {
        await setFrequency(tx, { place: at, wanted, frequencyS: given?.seconds ?? null, at: now() });
        const details = { frequency: given?.text ?? 'as the function says' };
        const action = 'sync.frequency_changed';
        await audit(tx, caller, { place: at, wanted: [wanted], action, details });
      });
      if (given !== null) return { frequency: given.text };
      const [status] = await syncStatuses({ db, vault, reader, now }, { ...at, wanted: [wanted] });
      return { frequency: status?.frequency ?? '' };
    },
  );

  app.post(
    '/functions/syncs/:name/variants/:variant',
    {
      ...write,
      schema: {
        operationId: 'addSyncVariant',
        summary: 'Add a variant of a sync for a connection',
        description: 'The variant has a separate schedule, a separate checkpoint and separate records.',
        errors: [
          ...connectionErrors,
          ...syncErrors,
          'invalid_variant',
          'resource_capped',
          'sync_variant_already_exists',
        ],
        params: ofVariant,
        body: variantBody,
        response: { 200: z.object({ id: z.string(), name: z.string(), variant: z.string() }) },
      },
    },
    async ({ params: { name, variant }, body, caller }) => {
      requireOwn(variant);
      const at = await onePlace(caller, body);
      const id = await db.transaction(async (tx) => {
        await makeBaseSyncs(tx, { ...at, names: [name] });
        const added = await addVariant(tx, { place: at, name, variant, at: now() });
        await audit(tx, caller, { place: at, wanted: [{ name, variant }], action: 'sync.variant_added' });
        return added;
      });
      return { id: String(id), name, variant };
    },
  );

  app.delete(
    '/functions/syncs/:name/variants/:variant',
    {
      ...write,
      schema: {
        operationId: 'removeSyncVariant',
        summary: 'Remove a variant of a sync for a connection',
        description: 'Its runs end. The records that it saved stay.',
        errors: [...connectionErrors, ...syncErrors, 'invalid_variant'],
        params: ofVariant,
        body: variantBody,
        response: done,
      },
    },
    async ({ params: { name, variant }, body, caller }) => {
      requireOwn(variant);
      const at = await onePlace(caller, body);
      await db.transaction(async (tx) => {
        await removeVariant(tx, { place: at, name, variant, at: now() });
        await audit(tx, caller, { place: at, wanted: [{ name, variant }], action: 'sync.variant_removed' });
      });
      return { success: true as const };
    },
  );

  function changeStateRoute(
    path: string,
    {
      action,
      change,
      ...named
    }: {
      action: string;
      change: typeof startSyncs;
      operationId: string;
      summary: string;
      description: string;
    },
  ): void {
    app.post(
      path,
      {
        ...write,
        schema: {
          ...named,
          errors: syncErrors,
          headers: placeHeaders,
          example: {
            body: { integration_id: 'google-sheet', connection_id: 'ada-sheets', syncs: ['rows'] },
          },
          body: z.strictObject(placeAndSyncs),
          response: done,
        },
      },
      async ({ body, headers, caller }) => {
        const syncs = { place: placeOf(caller, body, headers), wanted: body.syncs };
        await db.transaction(async (tx) => {
          const locked = await syncsOf(tx, syncs);
          await change(tx, { syncIds: locked.map(({ id }) => id), at: now() });
          await audit(tx, caller, { ...syncs, action });
        });
        return { success: true as const };
      },
    );
  }

  /** The place of one connection. Throws if there is no such connection. */
  async function onePlace({ environmentId }: Caller, body: z.output<typeof variantBody>) {
    const { provider_config_key, connection_id } = body;
    const at = { environmentId, integrationKey: provider_config_key, connectionId: connection_id };
    await reader.get(at);
    return at;
  }
}

type Wanted = { place: SyncPlace; wanted: readonly SyncName[] };

/** Writes an audit entry that names the place and its syncs. */
function audit(
  tx: Tx,
  caller: Caller,
  {
    place: { environmentId, integrationKey: key, connectionId: id },
    wanted,
    action,
    details,
  }: Wanted & { action: string; details?: Record<string, string> },
): Promise<void> {
  const names = wanted.map(({ name, variant }) => (variant === 'base' ? name : `${name}::${variant}`));
  return writeAudit(tx, {
    environmentId,
    actor: actorOf(caller),
    action,
    target: id === undefined ? key : `${key}/${id}`,
    details: { syncs: names.length === 0 ? '*' : names.join(','), ...details },
  });
}

/** Locks the syncs, and creates missing ones of the variant `base`. */
async function syncsOf(tx: Parameters<typeof lockSyncs>[0], { place: at, wanted }: Wanted) {
  await requirePlace(tx, { ...at, names: wanted.map(({ name }) => name) });
  const based = wanted.filter(({ variant }) => variant === 'base').map(({ name }) => name);
  if (wanted.length === 0 || based.length > 0) await makeBaseSyncs(tx, { ...at, names: based });
  const locked = await lockSyncs(tx, { ...at, wanted });
  const missing = wanted.find(
    (one) =>
      one.variant !== 'base' &&
      !locked.some(({ name, variant }) => name === one.name && variant === one.variant),
  );
  if (missing === undefined) return locked;
  const { name, variant } = missing;
  throw new AppError('no_syncs_found', `The sync "${name}" has no variant "${variant}" here.`);
}

function placeOf(
  caller: Caller,
  given: { provider_config_key?: string | undefined; connection_id?: string | undefined },
  headers: Partial<z.output<typeof placeHeaders>>,
): SyncPlace {
  const key = given.provider_config_key ?? headers['provider-config-key'];
  if (key === undefined) throw new AppError('missing_provider_config_key');
  return {
    environmentId: caller.environmentId,
    integrationKey: key,
    connectionId: given.connection_id ?? headers['connection-id'],
  };
}

function requireOwn(variant: string): void {
  if (variant === 'base') throw new AppError('invalid_variant');
}

function wantedOf(given: string): SyncName[] | undefined {
  if (given === '*') return undefined;
  const read = z.array(syncName).safeParse(given.split(','));
  if (read.success) return read.data;
  throw fieldError('invalid_query_params', ['syncs'], 'is `*` or names of syncs, separated by commas');
}

/** What a trigger resets first. `sync_mode` and `full_resync` are older than `opts`, and exclude it. */
function resetOf(body: {
  opts?: z.output<typeof opts> | undefined;
  sync_mode?: string | undefined;
  full_resync?: boolean | undefined;
}): 'kept' | 'removed' | undefined {
  const { sync_mode: mode, full_resync: isFull } = body;
  if (body.opts !== undefined) {
    if (mode !== undefined || isFull !== undefined)
      throw fieldError('invalid_body', ['opts'], 'cannot be combined with `sync_mode` or `full_resync`');
    const { reset, emptyCache } = body.opts;
    return reset ? (emptyCache ? 'removed' : 'kept') : undefined;
  }
  if (mode === 'full_refresh_and_clear_cache') return 'removed';
  return mode === 'full_refresh' || isFull ? 'kept' : undefined;
}

/** An allowance is for one sync of one connection, without a reset. */
function requireOneSync(
  { place: at, wanted }: { place: SyncPlace; wanted: readonly SyncName[] },
  reset: 'kept' | 'removed' | undefined,
): void {
  const fault =
    at.connectionId === undefined
      ? 'needs a `connection_id`'
      : wanted.length !== 1
        ? 'needs one name in `syncs`'
        : reset !== undefined && 'cannot be combined with a reset, which discards the held deletion';
  if (fault) throw fieldError('invalid_body', ['allow_mass_delete'], fault);
}
