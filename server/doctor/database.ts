/** The database: whether it is one that we run on, and set so that what was answered is kept. */
import { readMigrationState } from '../db/migrate.ts';
import { type Db, first } from '../db/pool.ts';
import { isSchemaMissing } from '../jobs/jobs.ts';
import { listNodes } from '../nodes/nodes.ts';
import { isStalled } from '../records/consumers.ts';
import { type Check, fail, messageOf, ok, type Verdict, warn } from './check.ts';

/** Of one node, as `openDb` opens them: of the pool, and fresh ones beside it. */
const poolSize = 21;
const maxSkewMs = 2_000;
const oldestMajor = 15;
const newestMajor = 18;

export function databaseChecks(db: Db, { isEmbedded }: { isEmbedded: boolean }): Check[] {
  return [
    { name: 'database-version', run: async () => judgeVersion(await settingOf(db, 'server_version_num')) },
    { name: 'database-encoding', run: async () => judgeEncoding(await settingOf(db, 'server_encoding')) },
    { name: 'database-writable', run: () => judgeWritable(db) },
    { name: 'durability', run: async () => judgeDurability(await settingsOf(db, durable)) },
    { name: 'time-limits', run: async () => judgeTimeLimits(await settingsOf(db, timeLimits)) },
    { name: 'database-connections', run: () => judgeConnections(db) },
    {
      name: 'database-memory',
      run: async () => judgeMemory(await settingBytes(db, 'shared_buffers'), isEmbedded),
    },
    { name: 'clock', run: () => judgeClock(db) },
    { name: 'migrations', run: () => judgeMigrations(db) },
    { name: 'job-queues', run: () => judgeJobs(db) },
    { name: 'nodes', run: () => judgeNodes(db) },
    { name: 'backlog', run: () => judgeBacklog(db) },
    { name: 'consumers', run: () => judgeConsumers(db) },
  ];
}

export function judgeVersion(number: string): Verdict {
  const major = Math.floor(Number(number) / 10_000);
  if (major < oldestMajor)
    return fail(
      `This is PostgreSQL ${major}.`,
      `Upgrade it: the service runs on ${oldestMajor} to ${newestMajor}.`,
    );
  if (major > newestMajor)
    return warn(
      `This is PostgreSQL ${major}, which this version was not tried on.`,
      `Use one of ${oldestMajor} to ${newestMajor}, or a newer version of the service.`,
    );
  return ok(`This is PostgreSQL ${major}.`);
}

export function judgeEncoding(encoding: string): Verdict {
  if (encoding === 'UTF8') return ok('Texts are kept in UTF-8.');
  return fail(
    `The database keeps texts in ${encoding}, which cannot hold every character.`,
    `Create it again: createdb --encoding=UTF8 --template=template0, and restore a backup into it.`,
  );
}

async function judgeWritable(db: Db): Promise<Verdict> {
  const found = first(
    await db.query<{ recovers: boolean; readsOnly: boolean; creates: boolean }>(
      `select
         pg_is_in_recovery() as recovers,
         current_setting('transaction_read_only')::boolean as "readsOnly",
         has_schema_privilege(current_schema(), 'create') as creates`,
    ),
  );
  if (found?.recovers === true)
    return fail(
      'This is a replica.',
      'Let DATABASE_URL lead to the primary (target_session_attrs=read-write).',
    );
  if (found?.readsOnly === true)
    return fail(
      'Transactions of this role only read.',
      'alter role ... reset default_transaction_read_only; or mend what made the server read-only, such as a full disk.',
    );
  if (found?.creates === false)
    return fail(
      'This role may make no tables, so it cannot migrate.',
      'grant all on schema public to it, or let it own the schema.',
    );
  return ok('It can be written to.');
}

const durable = ['fsync', 'full_page_writes', 'synchronous_commit'] as const;

export function judgeDurability(settings: Record<(typeof durable)[number], string>): Verdict {
  const off = durable.filter((name) => settings[name] === 'off');
  if (off.length === 0) return ok('What was committed survives a crash.');
  const said = `${off.join(' and ')} ${off.length === 1 ? 'is' : 'are'} off`;
  const mend = `Set ${off.map((name) => `${name} = on`).join(', ')}.`;
  return off.includes('fsync') || off.includes('full_page_writes')
    ? fail(`${said}: a crash of the machine may destroy the database.`, mend)
    : fail(`${said}: a crash loses what was acknowledged, tokens of providers among it.`, mend);
}

const timeLimits = [
  'statement_timeout',
  'idle_in_transaction_session_timeout',
  'lock_timeout',
  'transaction_timeout',
] as const;
const minLimitMs = 60_000;

/** Limits for the role that would cut off exports, retention or migrations. In ms, 0: none; absent before PostgreSQL 17. */
export function judgeTimeLimits(settings: Partial<Record<(typeof timeLimits)[number], string>>): Verdict {
  const short = timeLimits.filter((name) => {
    const ms = Number(settings[name] ?? 0);
    return ms > 0 && ms < minLimitMs;
  });
  if (short.length === 0) return ok('No time limit of the database cuts off work of ours.');
  return warn(
    `${short.map((name) => `${name} is ${settings[name]} ms`).join(', ')}: exports and jobs may be cut off.`,
    'alter role ... set these to 0, or to more than a minute.',
  );
}

async function judgeConnections(db: Db): Promise<Verdict> {
  const found = first(
    await db.query<{ max: number; open: number }>(
      `select
         current_setting('max_connections')::integer
           - current_setting('superuser_reserved_connections')::integer as max,
         (select count(*) from pg_stat_activity where backend_type = 'client backend') as open`,
    ),
  );
  const { max = 0, open = 0 } = found ?? {};
  const nodes = Math.max(1, await countNodes(db));
  const says = `${max} connections are possible, ${open} are open; ${nodes} ${nodes === 1 ? 'node' : 'nodes'} may take ${nodes * poolSize}.`;
  if (nodes * poolSize > max)
    return warn(says, 'Raise max_connections, or put PgBouncer in transaction mode in between.');
  return ok(says);
}

const minBuffers = 128 * 1024 * 1024;

function judgeMemory(sharedBuffers: number, isEmbedded: boolean): Verdict {
  const mb = Math.round(sharedBuffers / 1024 / 1024);
  if (isEmbedded || sharedBuffers >= minBuffers) return ok(`shared_buffers is ${mb} MB.`);
  return warn(`shared_buffers is ${mb} MB.`, 'A quarter of the memory of the database server is usual.');
}

async function judgeClock(db: Db): Promise<Verdict> {
  const before = Date.now();
  const found = first(
    await db.query<{ ms: number }>('select extract(epoch from clock_timestamp())::float8 * 1000 as ms'),
  );
  return judgeSkew((found?.ms ?? before) - (before + Date.now()) / 2);
}

/** `ms` by which the database's clock is ahead of this machine's. */
export function judgeSkew(ms: number): Verdict {
  const seconds = (Math.abs(ms) / 1000).toFixed(1);
  if (Math.abs(ms) <= maxSkewMs)
    return ok(`The clocks of this machine and the database agree to ${seconds} s.`);
  return warn(
    `The database's clock is ${seconds} s ${ms > 0 ? 'ahead of' : 'behind'} this machine's.`,
    'Run NTP on both: expiries of tokens and the order of the activity log depend on them.',
  );
}

async function judgeMigrations(db: Db): Promise<Verdict> {
  const { pending, refused } = await readMigrationState(db);
  if (refused.length > 0)
    return fail(
      `A newer version has migrated the database (${refused.join(', ')}), and this one does not run with it.`,
      'Install the newer version on this node.',
    );
  if (pending.length > 0)
    return warn(
      `${pending.length} migrations are due, the last one ${pending.at(-1)}.`,
      'Start the service: it applies them.',
    );
  return ok('All migrations of this version are applied.');
}

async function judgeJobs(db: Db): Promise<Verdict> {
  try {
    const isMissing = await isSchemaMissing(db);
    return ok(
      isMissing ? 'The queues of jobs are made by the first start.' : 'The queues of jobs are there.',
    );
  } catch (error) {
    return fail('The queues of jobs cannot be used.', messageOf(error));
  }
}

async function judgeNodes(db: Db): Promise<Verdict> {
  if (!(await isThere(db, 'node'))) return ok('No node has started yet.');
  const nodes = (await listNodes(db)).filter(({ isSilent }) => !isSilent);
  if (nodes.length === 0) return ok('No node runs.');
  const versions = [...new Set(nodes.map(({ version }) => version))];
  if (!nodes.some(({ role, isStopping }) => role !== 'api' && !isStopping))
    return fail(
      `${nodes.length} nodes run, and none does what is due in the background.`,
      'Start one with --role worker or --role all.',
    );
  if (versions.length > 1)
    return warn(`Nodes of the versions ${versions.join(' and ')} run.`, 'Bring the rest up to the newest.');
  return ok(
    `${nodes.length === 1 ? 'One node runs' : `${nodes.length} nodes run`}, of version ${versions[0]}.`,
  );
}

async function countNodes(db: Db): Promise<number> {
  if (!(await isThere(db, 'node'))) return 0;
  return (await listNodes(db)).filter(({ isSilent }) => !isSilent).length;
}

/** What waits for longer than it should while a service runs. */
async function judgeBacklog(db: Db): Promise<Verdict> {
  if (!(await isThere(db, 'event')) || !(await isThere(db, 'run'))) return ok('Nothing waits.');
  const found = first(
    await db.query<{ events: boolean; audit: boolean; runs: boolean }>(
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
    ),
  );
  const late = [
    ...(found?.events === true ? ['events without a position'] : []),
    ...(found?.audit === true ? ['audit entries without a position'] : []),
    ...(found?.runs === true ? ['runs that were due a quarter of an hour ago'] : []),
  ];
  if (late.length === 0) return ok('Nothing has waited for long.');
  return warn(
    `There are ${late.join(' and ')}.`,
    'See that a node with the role worker or all runs, and what its log says; more of them take more runs at once.',
  );
}

/** Consumers that keep a policy from pruning, and that no silence ends. */
async function judgeConsumers(db: Db): Promise<Verdict> {
  const columns = await db.query(
    `select from pg_attribute where attrelid = to_regclass('consumer') and attname = 'held_since'`,
  );
  if (columns.length === 0) return ok('There are no consumers that could be stalled.');
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
      `so that a retention policy may wait for ${stalled.length === 1 ? 'it' : 'them'}: ${shown.join('; ')}${stalled.length > 3 ? '; ...' : '.'}`,
    'Repair the program that follows. Remove a consumer that is not needed: in the dashboard, or with DELETE /records/consumers/{name}.',
  );
}

async function isThere(db: Db, table: string): Promise<boolean> {
  const found = first(
    await db.query<{ there: boolean }>('select to_regclass($1) is not null as there', [table]),
  );
  return found?.there === true;
}

async function settingOf(db: Db, name: string): Promise<string> {
  return first(await db.query<{ value: string }>('select current_setting($1) as value', [name]))?.value ?? '';
}

/** As `pg_settings` has them: times in ms. */
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
  const found = first(
    await db.query<{ bytes: number }>('select pg_size_bytes(current_setting($1)) as bytes', [name]),
  );
  return found?.bytes ?? 0;
}
