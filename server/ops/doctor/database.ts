/** The database: its version, its settings, its state, and the master keys that open it. */
import { availableParallelism, hostname, loadavg } from 'node:os';
import type { MasterKey } from '../../config/config.ts';
import { findKeyFault, listMasterKeys } from '../../data-keys/master-keys.ts';
import { readMigrationState } from '../../db/migrate.ts';
import { type Db, maxNodeConnections } from '../../db/pool.ts';
import { isSchemaMissing } from '../../jobs/jobs.ts';
import { listNodes, type Node } from '../../nodes/nodes.ts';
import { isStalled } from '../../records/retention/consumers.ts';
import { clusterCheck, type DirectSettings, workersCheck } from '../cluster/checks.ts';
import { type Check, type CheckResult, fail, messageOf, ok, warn } from './check.ts';

const maxSkewMs = 2_000;
const oldestMajor = 15;
const newestMajor = 18;

/** `processes`: the number that the settings name. */
export function databaseChecks(
  db: Db,
  { isEmbedded, processes, ...direct }: { isEmbedded: boolean; processes: number } & DirectSettings,
): Check[] {
  return [
    {
      name: 'database-version',
      run: async () => checkServerVersion(await settingOf(db, 'server_version_num')),
    },
    { name: 'database-encoding', run: async () => checkEncoding(await settingOf(db, 'server_encoding')) },
    { name: 'database-writable', run: () => checkWritable(db) },
    { name: 'durability', run: async () => checkDurability(await settingsOf(db, durable)) },
    { name: 'time-limits', run: async () => checkTimeLimits(await settingsOf(db, timeLimits)) },
    { name: 'database-connections', run: () => checkConnections(db, processes) },
    {
      name: 'database-memory',
      run: async () => checkMemory(await settingBytes(db, 'shared_buffers'), isEmbedded),
    },
    { name: 'clock', run: () => checkClock(db) },
    { name: 'migrations', run: () => checkMigrations(db) },
    clusterCheck(db),
    workersCheck(db, direct),
    { name: 'job-queues', run: () => checkJobs(db) },
    { name: 'nodes', run: () => checkNodes(db) },
    { name: 'processes', run: () => checkOwnProcesses(db, processes) },
    { name: 'backlog', run: () => checkBacklog(db) },
    { name: 'consumers', run: () => checkConsumers(db) },
  ];
}

export function checkServerVersion(number: string): CheckResult {
  const major = Math.floor(Number(number) / 10_000);
  if (major < oldestMajor)
    return fail(
      `This is PostgreSQL ${major}.`,
      `Upgrade it: the service runs on ${oldestMajor} to ${newestMajor}.`,
    );
  if (major > newestMajor)
    return warn(
      `This is PostgreSQL ${major}, which was not tested with this version of the service.`,
      `Use PostgreSQL ${oldestMajor} to ${newestMajor}, or a newer version of the service.`,
    );
  return ok(`This is PostgreSQL ${major}.`);
}

export function checkEncoding(encoding: string): CheckResult {
  if (encoding === 'UTF8') return ok('Text is stored in UTF-8.');
  return fail(
    `The database stores text in ${encoding}, which cannot represent all characters.`,
    `Create it again: createdb --encoding=UTF8 --template=template0, and restore a backup into it.`,
  );
}

async function checkWritable(db: Db): Promise<CheckResult> {
  const [found] = await db.query<{ recovers: boolean; readsOnly: boolean; creates: boolean }>(
    `select
       pg_is_in_recovery() as recovers,
       current_setting('transaction_read_only')::boolean as "readsOnly",
       has_schema_privilege(current_schema(), 'create') as creates`,
  );
  if (found?.recovers === true)
    return fail('This is a replica.', 'Set DATABASE_URL to the primary (target_session_attrs=read-write).');
  if (found?.readsOnly === true)
    return fail(
      'Transactions of this role are read-only.',
      'alter role ... reset default_transaction_read_only; or fix the cause at the server, such as a full disk.',
    );
  if (found?.creates === false)
    return fail(
      'This role may not create tables, so it cannot migrate.',
      'grant all on schema public to it, or make it the owner of the schema.',
    );
  return ok('The role may write and create tables.');
}

const durable = ['fsync', 'full_page_writes', 'synchronous_commit'] as const;

export function checkDurability(settings: Record<(typeof durable)[number], string>): CheckResult {
  const off = durable.filter((name) => settings[name] === 'off');
  if (off.length === 0) return ok('Committed data survive a crash.');
  const finding = `${off.join(' and ')} ${off.length === 1 ? 'is' : 'are'} off`;
  const remedy = `Set ${off.map((name) => `${name} = on`).join(', ')}.`;
  return off.includes('fsync') || off.includes('full_page_writes')
    ? fail(`${finding}: a crash of the machine may destroy the database.`, remedy)
    : fail(`${finding}: a crash loses acknowledged work, including refreshed tokens.`, remedy);
}

const timeLimits = [
  'statement_timeout',
  'idle_in_transaction_session_timeout',
  'lock_timeout',
  'transaction_timeout',
] as const;
const minLimitMs = 60_000;

/** Limits of the role that interrupt exports, retention or migrations. In ms, 0: none; absent before PostgreSQL 17. */
export function checkTimeLimits(settings: Partial<Record<(typeof timeLimits)[number], string>>): CheckResult {
  const short = timeLimits.filter((name) => {
    const ms = Number(settings[name] ?? 0);
    return ms > 0 && ms < minLimitMs;
  });
  if (short.length === 0) return ok('The time limits of the database do not interrupt the service.');
  return warn(
    `${short.map((name) => `${name} is ${settings[name]} ms`).join(', ')}: exports and jobs may be interrupted.`,
    'alter role ... set these to 0, or to more than a minute.',
  );
}

async function checkConnections(db: Db, processes: number): Promise<CheckResult> {
  const [found] = await db.query<{ max: number; open: number }>(
    `select
       current_setting('max_connections')::integer
         - current_setting('superuser_reserved_connections')::integer as max,
       (select count(*) from pg_stat_activity where backend_type = 'client backend') as open`,
  );
  const { max = 0, open = 0 } = found ?? {};
  const nodes = Math.max(processes, (await listLiveNodes(db)).length);
  const message = `${max} connections are possible, ${open} are open; ${nodes} ${nodes === 1 ? 'node' : 'nodes'} may open ${nodes * maxNodeConnections}.`;
  if (nodes * maxNodeConnections > max)
    return warn(message, 'Raise max_connections, or use PgBouncer in transaction mode.');
  return ok(message);
}

const minBuffers = 128 * 1024 * 1024;

function checkMemory(sharedBuffers: number, isEmbedded: boolean): CheckResult {
  const mb = Math.round(sharedBuffers / 1024 / 1024);
  if (isEmbedded || sharedBuffers >= minBuffers) return ok(`shared_buffers is ${mb} MB.`);
  return warn(`shared_buffers is ${mb} MB.`, 'Set it to a quarter of the memory of the database server.');
}

async function checkClock(db: Db): Promise<CheckResult> {
  const before = Date.now();
  const [found] = await db.query<{ ms: number }>(
    'select extract(epoch from clock_timestamp())::float8 * 1000 as ms',
  );
  return checkSkew((found?.ms ?? before) - (before + Date.now()) / 2);
}

/** `ms` by which the database's clock is ahead of this machine's. */
export function checkSkew(ms: number): CheckResult {
  const seconds = (Math.abs(ms) / 1000).toFixed(1);
  if (Math.abs(ms) <= maxSkewMs)
    return ok(`The clocks of this machine and of the database differ by ${seconds} s.`);
  return warn(
    `The database's clock is ${seconds} s ${ms > 0 ? 'ahead of' : 'behind'} this machine's.`,
    'Run NTP on both machines: expiries of tokens and the order of the activity log depend on the clocks.',
  );
}

async function checkMigrations(db: Db): Promise<CheckResult> {
  const { pending, refused } = await readMigrationState(db);
  if (refused.length > 0)
    return fail(
      `A newer version has migrated the database (${refused.join(', ')}), and this version does not run with it.`,
      'Install the newer version on this node.',
    );
  if (pending.length > 0)
    return warn(
      `${pending.length} migrations are not applied yet; the last one is ${pending.at(-1)}.`,
      'Start the service: it applies them.',
    );
  return ok('All migrations of this version are applied.');
}

async function checkJobs(db: Db): Promise<CheckResult> {
  try {
    const isMissing = await isSchemaMissing(db);
    return ok(isMissing ? 'The first start creates the queues of jobs.' : 'The queues of jobs exist.');
  } catch (error) {
    return fail('The queues of jobs cannot be used.', messageOf(error));
  }
}

async function checkNodes(db: Db): Promise<CheckResult> {
  if (!(await isThere(db, 'node'))) return ok('No node has started yet.');
  const nodes = await listLiveNodes(db);
  if (nodes.length === 0) return ok('No node runs.');
  const versions = [...new Set(nodes.map(({ version }) => version))];
  if (!nodes.some(({ role, isStopping }) => role !== 'api' && !isStopping))
    return fail(
      `${nodes.length} nodes run, and no node does background work.`,
      'Start a node with --role worker or --role all.',
    );
  if (versions.length > 1)
    return warn(
      `Nodes of the versions ${versions.join(' and ')} run.`,
      'Upgrade the others to the newest version.',
    );
  return ok(
    `${nodes.length === 1 ? 'One node runs' : `${nodes.length} nodes run`}, of version ${versions[0]}.`,
  );
}

async function listLiveNodes(db: Db): Promise<Node[]> {
  if (!(await isThere(db, 'node'))) return [];
  return (await listNodes(db)).filter(({ isSilent }) => !isSilent);
}

/** By the nodes of this machine that run, or by the settings if none does: then the load is that of other programs. */
async function checkOwnProcesses(db: Db, processes: number): Promise<CheckResult> {
  const own = (await listLiveNodes(db)).filter(({ name }) => name.startsWith(`${hostname()}:`)).length;
  const [, load = 0] = own > 0 ? loadavg() : [];
  return checkProcesses({ processes: own || processes, cores: availableParallelism(), load });
}

/** A node is busy with about one core. A machine at its limit has no core for another one. */
export function checkProcesses({
  processes,
  cores,
  load,
}: {
  processes: number;
  cores: number;
  /** The load of the machine, over five minutes. */
  load: number;
}): CheckResult {
  const message = `${processes} ${processes === 1 ? 'process serves' : 'processes serve'} on ${cores} ${cores === 1 ? 'core' : 'cores'}; the load is ${load.toFixed(1)}.`;
  if (processes > cores)
    return warn(message, 'Start at most one process for each core: more only take memory and connections.');
  if (processes < cores && load >= 0.7 * processes && load < cores)
    return warn(
      message,
      'More processes may carry more: trellis start --processes auto. See docs/operations/processes.md.',
    );
  return ok(message);
}

/** Events, audit entries and runs that have waited for too long. */
async function checkBacklog(db: Db): Promise<CheckResult> {
  if (!(await isThere(db, 'event')) || !(await isThere(db, 'run'))) return ok('The queues are empty.');
  const [found] = await db.query<{ events: boolean; audit: boolean; runs: boolean }>(
    `select
       exists (
         select from event where position is null and created_at < clock_timestamp() - interval '1 minute'
       ) as events,
       exists (
         select from audit where position is null and created_at < clock_timestamp() - interval '1 minute'
       ) as audit,
       exists (
         select from run where state = 'waiting' and not_before < clock_timestamp() - interval '15 minutes'
       ) as runs`,
  );
  // Apart: Citus cannot combine an EXISTS of its tables with others.
  const sent = (await isThere(db, 'dataset_outbox'))
    ? await db.query(
        `select from dataset_outbox where written_at < clock_timestamp() - interval '1 minute' limit 1`,
      )
    : [];
  const late = [
    found?.events && 'events without a position',
    found?.audit && 'audit entries without a position',
    sent.length > 0 && 'audit entries or events of datasets without a position',
    found?.runs && 'runs that are more than 15 minutes overdue',
  ].filter(Boolean);
  if (late.length === 0) return ok('No entry has waited for a long time.');
  return warn(
    `There are ${late.join(' and ')}.`,
    'Check that a node with the role worker or all runs, and read its log. More nodes run more functions at the same time.',
  );
}

/** Consumers that prevent pruning by a policy, and do not expire. */
async function checkConsumers(db: Db): Promise<CheckResult> {
  const columns = await db.query(
    `select from pg_attribute where attrelid = to_regclass('consumer') and attname = 'held_since'`,
  );
  if (columns.length === 0) return ok('There are no consumers yet.');
  const stalled = await db.query<{ name: string }>(
    `select
       consumer.name || ' (' || concat_ws(', ',
         environment.name, integration.key || '/' || connection.connection_id, dataset.model, dataset.variant
       ) || ')' as name
     from consumer
     join dataset on dataset.id = consumer.dataset_id
     join connection on connection.id = dataset.connection
     join integration on integration.id = connection.integration_id
     join environment on environment.id = connection.environment_id
     where connection.deleted_at is null and ${isStalled}
     order by consumer.held_since
     limit 101`,
  );
  if (stalled.length === 0)
    return ok('No consumer has acknowledged one cursor for 30 days while changes wait.');
  const count = stalled.length > 100 ? 'More than 100' : stalled.length;
  const shown = stalled.slice(0, 3).map(({ name }) => name);
  return warn(
    `${count} ${stalled.length === 1 ? 'consumer has' : 'consumers have'} acknowledged one cursor for 30 days while changes wait, ` +
      `which can delay a retention policy: ${shown.join('; ')}${stalled.length > 3 ? '; ...' : '.'}`,
    'Fix the program that reads the changes. Remove a consumer that is not needed: in the dashboard, or with DELETE /records/consumers/{name}.',
  );
}

/** Whether a migration has created the table. */
export async function isThere(db: Db, table: string): Promise<boolean> {
  const [found] = await db.query<{ there: boolean }>('select to_regclass($1) is not null as there', [table]);
  return found?.there === true;
}

async function settingOf(db: Db, name: string): Promise<string> {
  const [found] = await db.query<{ value: string }>('select current_setting($1) as value', [name]);
  return found?.value ?? '';
}

/** As in `pg_settings`: times in ms. */
async function settingsOf<Name extends string>(
  db: Db,
  names: readonly Name[],
): Promise<Record<Name, string>> {
  const rows = await db.query<{ name: Name; setting: string }>(
    'select name, setting from pg_settings where name = any($1)',
    [names],
  );
  return Object.fromEntries(rows.map(({ name, setting }) => [name, setting])) as Record<Name, string>;
}

async function settingBytes(db: Db, name: string): Promise<number> {
  const [found] = await db.query<{ bytes: number }>('select pg_size_bytes(current_setting($1)) as bytes', [
    name,
  ]);
  return found?.bytes ?? 0;
}

/** `masterKeys` is undefined if neither the settings nor DATA_DIR have any. */
export async function checkKeyRing(
  db: Db,
  masterKeys: readonly MasterKey[] | undefined,
): Promise<CheckResult> {
  const known = (await isThere(db, 'master_key')) ? await listMasterKeys(db) : [];
  if (known.length === 0) return ok('The database contains no encrypted data yet.');
  if (masterKeys === undefined)
    return fail(
      'There are no master keys, and the database contains encrypted data.',
      'Set TRELLIS_ENCRYPTION_KEYS, or restore DATA_DIR/master.key from its backup. Without the keys, encrypted data cannot be read.',
    );
  const fault = await findKeyFault(db, masterKeys);
  if (fault !== undefined)
    return fail(fault.message, 'Give all nodes the same keys as before, the sealing key first.');
  const [sealing] = masterKeys;
  const retired = known.find(({ id, retiredAt }) => id === sealing?.id && retiredAt !== undefined);
  if (retired !== undefined)
    return warn(
      `The first master key, "${retired.id}", is retired.`,
      'Put the sealing key first; "trellis keys list" names it.',
    );
  const droppable = known.filter(
    ({ id, retiredAt }) => retiredAt !== undefined && masterKeys.some((given) => given.id === id),
  );
  if (droppable.length > 0)
    return ok(
      `The keys decrypt the data of the database; ${droppable.map(({ id }) => id).join(', ')} can be removed from the settings.`,
    );
  return ok('The keys decrypt the data of the database.');
}
