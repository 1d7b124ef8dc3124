/** Syncs for applications: trigger, pause, start, status, frequency, variants. */
import { z } from 'zod';
import { actorOf, writeAudit } from '../../activity/audit.ts';
import type { ConnectionReader } from '../../connections/reader.ts';
import { connectionId } from '../../connections/wire.ts';
import type { Db, Tx } from '../../db/pool.ts';
import { AppError, fieldError } from '../../errors.ts';
import type { Caller } from '../../http/caller.ts';
import { connectionErrors, type RouteError } from '../../http/describe.ts';
import type { App } from '../../http/server.ts';
import { text } from '../../http/text.ts';
import { integrationKey } from '../../integrations/wire.ts';
import type { Vault } from '../../vault.ts';
import { functionName } from '../deploys/definition.ts';
import { readFrequency } from '../deploys/frequency.ts';
import { queueRuns } from '../runs/runs.ts';
import { allowances, opts, requireOneSync, resetOf, syncName, wantedOf } from './sync-input.ts';
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

type Deps = {
  db: Db;
  vault: Vault;
  reader: Pick<ConnectionReader, 'get'>;
  now: () => Date;
  /** Lets this node look for what is due at once. */
  poke: () => void;
  /** Throws where functions are turned off. */
  open: () => Promise<void>;
};

const place = {
  provider_config_key: integrationKey.optional(),
  connection_id: connectionId.optional(),
};
const named = { ...place, syncs: z.array(syncName).max(256) };
/** Official clients may name the place in headers. */
const placeHeaders = z.looseObject({
  'provider-config-key': integrationKey.optional(),
  'connection-id': connectionId.optional(),
});
/** Of routes that take the connection, or all connections, of an integration. */
const syncErrors = [
  'functions_off',
  'missing_provider_config_key',
  { code: 'unknown_provider_config', status: 400 },
  { code: 'unknown_connection', status: 404 },
  'no_syncs_found',
  'unknown_sync',
] as const satisfies readonly RouteError[];
const done = { 200: z.object({ success: z.literal(true) }) };
const ofVariant = z.object({ name: functionName, variant: functionName });
const variantBody = z.strictObject({ provider_config_key: integrationKey, connection_id: connectionId });

export function syncRoutes(app: App, { db, vault, reader, now, poke, open }: Deps): void {
  const read = { config: { access: { by: 'key', scope: 'functions:read' } }, preParsing: open } as const;
  const write = { config: { access: { by: 'key', scope: 'functions:write' } }, preParsing: open } as const;

  app.post(
    '/sync/trigger',
    {
      ...write,
      schema: {
        operationId: 'triggerSyncs',
        summary: 'Run syncs now',
        description:
          'One that waits is due now; one that runs goes on, and runs once more when that is over. No `syncs` are all of the ' +
          'integration; no `connection_id` all connections. `reset` ends what runs, and forgets checkpoint, delete tracking and ' +
          'the last success first, with `emptyCache` the records too. `allow_mass_delete` allows a held mass deletion, once: by ' +
          'model, the maximum number of records, as in the error `mass_delete_held`. The request must name one sync and one connection.',
        errors: [...syncErrors, 'no_delete_tracking'],
        headers: placeHeaders,
        example: {
          body: {
            provider_config_key: 'google-sheet',
            connection_id: 'ada-sheets',
            syncs: ['rows'],
            opts: { reset: true },
          },
        },
        body: z.strictObject({
          ...named,
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
          const { target, details } = noteOf(syncs);
          const action = 'sync.mass_delete_allowed';
          const models = Object.entries(allowed).map(([model, count]) => `${model}: ${count}`);
          await note(tx, { caller, action, target, details: { ...details, models: models.join(', ') } });
        }
        if (reset !== undefined) {
          await resetSyncs(tx, { syncs: locked, records: reset, at });
          const { target, details } = noteOf(syncs);
          await note(tx, { caller, action: 'sync.reset', target, details: { ...details, records: reset } });
        }
        await queueRuns(tx, { syncIds: locked.map(({ id }) => id), at });
      });
      poke();
      return { success: true as const };
    },
  );

  app.post(
    '/sync/pause',
    {
      ...write,
      schema: {
        operationId: 'pauseSyncs',
        summary: 'Pause syncs',
        description:
          'What runs goes on to its end, and none follows it; nothing starts by itself until they are started again.',
        errors: syncErrors,
        headers: placeHeaders,
        example: {
          body: { provider_config_key: 'google-sheet', connection_id: 'ada-sheets', syncs: ['rows'] },
        },
        body: z.strictObject(named),
        response: done,
      },
    },
    async ({ body, headers, caller }) => {
      const syncs = { place: placeOf(caller, body, headers), wanted: body.syncs };
      await changeState(syncs, { caller, action: 'sync.paused', change: pauseSyncs });
      return { success: true as const };
    },
  );

  app.post(
    '/sync/start',
    {
      ...write,
      schema: {
        operationId: 'startSyncs',
        summary: 'Start syncs',
        description: 'They run at their next time.',
        errors: syncErrors,
        headers: placeHeaders,
        example: {
          body: { provider_config_key: 'google-sheet', connection_id: 'ada-sheets', syncs: ['rows'] },
        },
        body: z.strictObject(named),
        response: done,
      },
    },
    async ({ body, headers, caller }) => {
      const syncs = { place: placeOf(caller, body, headers), wanted: body.syncs };
      await changeState(syncs, { caller, action: 'sync.started', change: startSyncs });
      return { success: true as const };
    },
  );

  app.get(
    '/sync/status',
    {
      ...read,
      schema: {
        operationId: 'getSyncStatus',
        summary: 'What syncs are at',
        description:
          'Of one connection, or of all of the integration: state, last run, next run, checkpoint.',
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
      const { environmentId, integrationKey: key, connectionId: id } = placeOf(caller, query, headers);
      const at = { environmentId, integrationKey: key, connectionId: id };
      await requirePlace(db, { ...at, names: [] }).catch((error: unknown) => {
        // An integration without syncs has none to tell of.
        if (!(error instanceof AppError && error.code === 'no_syncs_found')) throw error;
      });
      return {
        syncs: await syncStatuses({ db, vault, reader, now }, { ...at, wanted: wantedOf(query.syncs) }),
      };
    },
  );

  app.put(
    '/sync/update-connection-frequency',
    {
      ...write,
      schema: {
        operationId: 'changeSyncFrequency',
        summary: 'Change how often a sync runs for a connection',
        description: 'Such as `every 5 minutes`; null brings back what the function says.',
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
      const at = placeOf(caller, body, {});
      const wanted = { name: body.sync_name, variant: body.sync_variant };
      await requireConnection(at);
      await db.transaction(async (tx) => {
        await setFrequency(tx, { place: at, wanted, frequencyS: given?.seconds ?? null, at: now() });
        const action = 'sync.frequency_changed';
        const frequency = given?.text ?? 'as the function says';
        const { target, details } = noteOf({ place: at, wanted: [wanted] });
        await note(tx, { caller, action, target, details: { ...details, frequency } });
      });
      if (given !== null) return { frequency: given.text };
      const [status] = await syncStatuses({ db, vault, reader, now }, { ...at, wanted: [wanted] });
      return { frequency: status?.frequency ?? '' };
    },
  );

  app.post(
    '/sync/:name/variant/:variant',
    {
      ...write,
      schema: {
        operationId: 'addSyncVariant',
        summary: 'Add a variant of a sync for a connection',
        description: 'It has a schedule, a checkpoint and records of its own.',
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
      const at = placeOf(caller, body, {});
      requireOwn(variant);
      await requireConnection(at);
      const id = await db.transaction(async (tx) => {
        await makeBaseSyncs(tx, { ...at, names: [name] });
        const added = await addVariant(tx, { place: at, name, variant, at: now() });
        const action = 'sync.variant_added';
        await note(tx, { caller, action, ...noteOf({ place: at, wanted: [{ name, variant }] }) });
        return added;
      });
      return { id: String(id), name, variant };
    },
  );

  app.delete(
    '/sync/:name/variant/:variant',
    {
      ...write,
      schema: {
        operationId: 'removeSyncVariant',
        summary: 'Remove a variant of a sync for a connection',
        description: 'Its runs end; the records that it saved stay.',
        errors: [...connectionErrors, ...syncErrors, 'invalid_variant'],
        params: ofVariant,
        body: variantBody,
        response: done,
      },
    },
    async ({ params: { name, variant }, body, caller }) => {
      const at = placeOf(caller, body, {});
      requireOwn(variant);
      await requireConnection(at);
      await db.transaction(async (tx) => {
        await removeVariant(tx, { place: at, name, variant, at: now() });
        const action = 'sync.variant_removed';
        await note(tx, { caller, action, ...noteOf({ place: at, wanted: [{ name, variant }] }) });
      });
      return { success: true as const };
    },
  );

  async function changeState(
    syncs: Wanted,
    { change, ...by }: { caller: Caller; action: string; change: typeof startSyncs },
  ): Promise<void> {
    await db.transaction(async (tx) => {
      const locked = await syncsOf(tx, syncs);
      await change(tx, { syncIds: locked.map(({ id }) => id), at: now() });
      await note(tx, { ...by, ...noteOf(syncs) });
    });
  }

  async function requireConnection({ environmentId, integrationKey: key, connectionId: id }: SyncPlace) {
    await reader.get({ environmentId, integrationKey: key, connectionId: id ?? '' });
  }
}

type Wanted = { place: SyncPlace; wanted: readonly SyncName[] };

type Noted = { caller: Caller; action: string; target: string; details?: Record<string, string> };

function note(tx: Tx, { caller, ...entry }: Noted): Promise<void> {
  return writeAudit(tx, { environmentId: caller.environmentId, actor: actorOf(caller), ...entry });
}

/** In the audit log: whose syncs, and which of them. */
function noteOf({ place: { integrationKey: key, connectionId: id }, wanted }: Wanted) {
  const names = wanted.map(({ name, variant }) => (variant === 'base' ? name : `${name}::${variant}`));
  return {
    target: id === undefined ? key : `${key}/${id}`,
    details: { syncs: names.length === 0 ? '*' : names.join(',') },
  };
}

/** Locked; those of the variant `base` are made where they are not there. */
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
