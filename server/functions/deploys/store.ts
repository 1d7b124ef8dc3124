/**
 * Functions, their versions and the texts of these: the tables `function`, `function_version` and `function_bundle`.
 *
 * Does not own: when a function runs and for whom (`sync`, `run`), or whether a bundle may be deployed (`examine.ts`).
 */
import { promisify } from 'node:util';
import { brotliCompress, brotliDecompress, constants } from 'node:zlib';
import { first, type Queryable, type Tx } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { freeIfLarge } from '../../large-buffer.ts';
import { lockQueuedActions, queueFailedEvent } from '../action-events.ts';
import type { Definition, Kind } from './definition.ts';
import type { Examined } from './examine.ts';

/** Who brought it: a call of the interface, the service's own folder, or the service itself, with which it ships. */
export type Origin = 'deploy' | 'folder' | 'shipped';

/** A function with the version that runs. */
export type DeployedFunction = {
  id: number;
  integrationKey: string;
  provider: string;
  kind: Kind;
  name: string;
  isEnabled: boolean;
  origin: Origin;
  versionId: number;
  number: number;
  label: string;
  definition: Definition;
  digest: Buffer;
  deployedAt: Date;
};

type Version = {
  id: number;
  number: number;
  label: string;
  deployedAt: Date;
  deployedBy: string;
  isCurrent: boolean;
};

/** Which functions of an environment; what is left out is no condition. */
type Which = {
  environmentId: number;
  integrationKey?: string | undefined;
  name?: string | undefined;
  kind?: Kind | undefined;
  /** A part of the name, whatever its case. */
  search?: string | undefined;
  isEnabled?: boolean | undefined;
};

const select = `
  select
    function.id,
    integration.key as "integrationKey",
    integration.provider,
    function.kind,
    function.name,
    function.is_enabled as "isEnabled",
    function.origin,
    version.id as "versionId",
    version.number,
    version.label,
    version.definition,
    version.deployed_at as "deployedAt",
    bundle.digest
  from function
  join integration on integration.id = function.integration_id
  join function_version version on version.id = function.version_id
  join function_bundle bundle on bundle.id = version.bundle_id
  where function.environment_id = $1
    and ($2::text is null or integration.key = $2)
    and ($3::text is null or function.name = $3)
    and ($4::text is null or function.kind = $4)
    and ($5::text is null or strpos(lower(function.name), lower($5)) > 0)
    and ($6::boolean is null or function.is_enabled = $6)`;

function valuesOf({ environmentId, integrationKey, name, kind, search, isEnabled }: Which): unknown[] {
  return [
    environmentId,
    integrationKey ?? null,
    name ?? null,
    kind ?? null,
    search ?? null,
    isEnabled ?? null,
  ];
}

/** By integration, kind and name. */
export function listFunctions(
  db: Queryable,
  { limit, offset, ...which }: Which & { limit?: number; offset?: number },
): Promise<DeployedFunction[]> {
  return db.query<DeployedFunction>(
    `${select}
     order by integration.key collate "C", function.kind, function.name collate "C"
     limit $7
     offset $8`,
    [...valuesOf(which), limit ?? null, offset ?? 0],
  );
}

export async function countFunctions(db: Queryable, which: Which): Promise<number> {
  const row = first(
    await db.query<{ count: number }>(`select count(*) as count from (${select}) as found`, valuesOf(which)),
  );
  return row?.count ?? 0;
}

/** Throws `not_found`, or `ambiguous_function` where functions of several kinds have the name and none is given. */
export async function getFunction(
  db: Queryable,
  which: Which & { integrationKey: string; name: string },
): Promise<DeployedFunction> {
  const [found, another] = await listFunctions(db, which);
  if (found === undefined) {
    throw new AppError('not_found', `The integration has no function "${which.name}".`);
  }
  if (another === undefined) return found;
  throw new AppError('ambiguous_function', undefined, {
    payload: { matches: [found, another].map(({ kind, name }) => ({ type: wireKind(kind), name })) },
  });
}

/** How a kind is called on the wire. */
export function wireKind(kind: Kind): 'sync' | 'action' | 'on-event' {
  return kind === 'on_event' ? 'on-event' : kind;
}

/** Deploys, roll backs and removals of an environment come one after the other. */
export async function lockFunctions(tx: Tx, environmentId: number): Promise<void> {
  await tx.query('select from environment where id = $1 for no key update', [environmentId]);
}

/** Newest first. */
export function listVersions(
  db: Queryable,
  { environmentId, functionId }: { environmentId: number; functionId: number },
): Promise<Version[]> {
  return db.query<Version>(
    `select
       version.id,
       version.number,
       version.label,
       version.deployed_at as "deployedAt",
       version.deployed_by as "deployedBy",
       version.id = function.version_id as "isCurrent"
     from function_version version
     join function on function.id = version.function_id
     where function.id = $1 and function.environment_id = $2
     order by version.number desc
     limit 1000`,
    [functionId, environmentId],
  );
}

/** Throws `not_found`. */
export async function getVersionId(
  db: Queryable,
  { environmentId, functionId, number }: Record<'environmentId' | 'functionId' | 'number', number>,
): Promise<number> {
  const found = first(
    await db.query<{ id: number }>(
      `select version.id
       from function_version version
       join function on function.id = version.function_id
       where function.id = $1 and function.environment_id = $2 and version.number = $3`,
      [functionId, environmentId, number],
    ),
  );
  if (found === undefined) throw new AppError('not_found', `The function has no version ${number}.`);
  return found.id;
}

/** Lets a version run that was deployed before. */
export async function pointTo(
  tx: Tx,
  {
    environmentId,
    functionId,
    versionId,
    at,
  }: Record<'environmentId' | 'functionId' | 'versionId', number> & { at: Date },
): Promise<void> {
  await tx.query(
    'update function set version_id = $3, updated_at = $4 where id = $1 and environment_id = $2',
    [functionId, environmentId, versionId, at],
  );
}

export async function setEnabled(
  tx: Tx,
  {
    environmentId,
    functionId,
    isEnabled,
    at,
  }: { environmentId: number; functionId: number; isEnabled: boolean; at: Date },
): Promise<void> {
  await tx.query(
    'update function set is_enabled = $3, updated_at = $4 where id = $1 and environment_id = $2',
    [functionId, environmentId, isEnabled, at],
  );
}

/** Deletes a function with its versions, syncs and runs, and queues an event for each queued action. Its records remain. */
export async function removeFunction(
  tx: Tx,
  { environmentId, functionId }: { environmentId: number; functionId: number },
): Promise<void> {
  // All lockers use this order.
  await tx.query('select from sync where function_id = $1 order by id for update', [functionId]);
  for (const action of await lockQueuedActions(tx, { environmentId, functionId }))
    await queueFailedEvent(tx, action, removed);
  await tx.query('delete from function where id = $1 and environment_id = $2', [functionId, environmentId]);
}

const removed = { code: 'function_removed', message: 'The function was removed.' };

/** The source of a version, or its code where it was deployed without. */
export async function sourceOf(
  db: Queryable,
  { environmentId, versionId }: { environmentId: number; versionId: number },
): Promise<string> {
  const row = first(await bundleRows(db, { environmentId, versionId }));
  if (row === undefined) throw new AppError('not_found', 'The function was removed.');
  return inflate(row.source ?? row.code);
}

/** The code of a version and what it is; undefined where it is gone. */
export async function findCode(
  db: Queryable,
  { environmentId, versionId }: { environmentId: number; versionId: number },
): Promise<{ code: string; definition: Definition } | undefined> {
  const row = first(await bundleRows(db, { environmentId, versionId }));
  return row && { code: await inflate(row.code), definition: row.definition };
}

function bundleRows(
  db: Queryable,
  { environmentId, versionId }: { environmentId: number; versionId: number },
): Promise<{ code: Buffer; source: Buffer | null; definition: Definition }[]> {
  return db.query(
    `select bundle.code, bundle.source, version.definition
     from function_version version
     join function_bundle bundle on bundle.id = version.bundle_id
     where version.id = $1 and bundle.environment_id = $2`,
    [versionId, environmentId],
  );
}

/** Adds a version, which runs from now on, to a function that is made where there is none of its name. */
export async function addVersion(
  tx: Tx,
  given: Examined,
  by: { environmentId: number; integrationId: number; origin: Origin; actor: string; at: Date },
): Promise<{ functionId: number; number: number }> {
  const { environmentId, at } = by;
  const bundleId = await putBundle(tx, given, by);
  const made = first(
    await tx.query<{ id: number }>(
      `insert into function (environment_id, integration_id, kind, name, origin, created_at, updated_at)
       values ($1, $2, $3, $4, $5, $6, $6)
       on conflict (integration_id, kind, name) do update
         set origin = excluded.origin, updated_at = excluded.updated_at
       returning id`,
      [environmentId, by.integrationId, given.kind, given.name, by.origin, at],
    ),
  );
  const functionId = made!.id;
  const version = first(
    await tx.query<{ id: number; number: number }>(
      `insert into function_version (function_id, number, label, bundle_id, definition, deployed_at, deployed_by)
       select $1, coalesce(max(number), 0) + 1, $2, $3, $4, $5, $6
       from function_version
       where function_id = $1
       returning id, number`,
      [functionId, given.label, bundleId, JSON.stringify(given.definition), at, by.actor],
    ),
  );
  await pointTo(tx, { environmentId, functionId, versionId: version!.id, at });
  return { functionId, number: version!.number };
}

async function putBundle(
  tx: Tx,
  { digest, code, source }: Examined,
  { environmentId, at }: { environmentId: number; at: Date },
): Promise<number> {
  const known = first(
    await tx.query<{ id: number }>(
      'update function_bundle set touched_at = $3 where environment_id = $1 and digest = $2 returning id',
      [environmentId, digest, at],
    ),
  );
  if (known !== undefined) return known.id;
  const [packed, packedSource] = await Promise.all([deflate(code), source === null ? null : deflate(source)]);
  const made = first(
    await tx.query<{ id: number }>(
      `insert into function_bundle (environment_id, digest, code, source, touched_at)
       values ($1, $2, $3, $4, $5)
       on conflict (environment_id, digest) do update set touched_at = excluded.touched_at
       returning id`,
      [environmentId, digest, packed, packedSource, at],
    ),
  );
  return made!.id;
}

/** A deploy waits for it: 5 is nearly as small as 11, and fifty times as fast. */
const options = { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } };
const deflate = (text: string): Promise<Buffer> => promisify(brotliCompress)(text, options);

async function inflate(deflated: Buffer): Promise<string> {
  const bytes = await promisify(brotliDecompress)(deflated);
  const text = bytes.toString();
  freeIfLarge(bytes);
  return text;
}
