import { BlockList } from 'node:net';
import { type ParseArgsOptionsConfig, parseArgs } from 'node:util';
import { type Config, loadConfigWithoutKeys, readCommandSecrets } from '../config/config.ts';
import { proveKeyRing, proveStarted } from '../data-keys/master-keys.ts';
import { readMigrationState } from '../db/migrate.ts';
import type { Db } from '../db/pool.ts';
import { getEnvironment, proveEnvironmentKeys } from '../environments/store.ts';
import { AppError } from '../errors.ts';
import type { IntegrationReading } from '../integrations/store.ts';
import { withImportLock } from '../moving/import-lock.ts';
import { openPeer } from '../moving/peer/client.ts';
import { readPositions } from '../moving/peer/positions.ts';
import { type PeerRun, runPeer, tryPeerRun } from '../moving/peer/run.ts';
import { isWhole, linesOf, type Reported, reportText } from '../moving/report.ts';
import { createOutbound } from '../outbound.ts';
import { loadCatalog, providersDirectory } from '../providers/catalog.ts';
import { proveWritable, writeWhole } from '../whole-file.ts';
import { readVault } from './keys.ts';
import { oneLine } from './one-line.ts';
import { createProgress } from './progress.ts';
import { withDatabase } from './reach-database.ts';
import { readSecret } from './secret.ts';

const usage = `The command is one of:

  import nango --from URL --environment NAME [--key-file FILE] [--integrations a,b] [--provider THEIRS=OURS]...
               [--records [--models A,B] [--positions FILE [--consumer NAME]]] [--overwrite] [--parallel 8]
               [--dry-run] [--report FILE]
  import FILE [--environment NAME] [--passphrase-file FILE] [--overwrite] [--dry-run] [--report FILE]`;

const flag = { type: 'boolean', default: false } as const;
const text = { type: 'string' } as const;

/** `trellis import`: what an application has elsewhere, also while the service runs. Exits with 1 where not all of it is here. */
export async function importCommand(args: string[]): Promise<number> {
  if (args.includes('--help')) {
    console.log(usage);
    return 0;
  }
  if (args[0] === 'nango') return importPeerCommand(args.slice(1));
  return (await import('./import-file.ts')).importFileCommand(args, usage);
}

const peerOptions = {
  ...{ from: text, environment: text, 'key-file': text, integrations: text, models: text, positions: text },
  ...{ consumer: text, report: text, parallel: text },
  provider: { type: 'string', multiple: true, default: [] as string[] },
  ...{ records: flag, overwrite: flag, 'dry-run': flag },
} satisfies ParseArgsOptionsConfig;

async function importPeerCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({ args, options: peerOptions });
  if (values.from === undefined || values.environment === undefined) throw new Error(usage);
  const url = readAddress(values.from);
  if (values.report !== undefined) await proveWritable(values.report);
  const parallel = readCount(values.parallel ?? '8');
  const providerNames = readNames(values.provider);
  const only = values.integrations === undefined ? undefined : new Set(listOf(values.integrations));
  if (!values.records && (values.models ?? values.positions ?? values.consumer) !== undefined)
    throw new Error('--models, --positions and --consumer go with --records.');
  const records = values.records
    ? {
        models: listOf(values.models),
        positions: values.positions === undefined ? new Map() : await readPositions(values.positions),
        consumer: readConsumer(values.consumer ?? 'imported'),
      }
    : undefined;
  const key = await readSecret({
    file: values['key-file'],
    setting: readCommandSecrets().peerKey,
    question: `Secret key of ${url}:`,
    advice: 'Give the secret key of the peer by --key-file FILE, or as TRELLIS_PEER_KEY.',
  });
  const config = loadConfigWithoutKeys();
  const outbound = createOutbound({ allow: [{ addresses: privateRanges() }] });
  try {
    return await withStore(config, async ({ db, reading }) => {
      const environment = await getEnvironment(db, values.environment!);
      const progress = createProgress(process.stderr);
      const run: PeerRun = {
        ...{ db, reading, environment, records, parallel, baseUrl: config.baseUrl },
        peer: openPeer({ url, key, fetch: outbound.fetchFor({ isTest: false }) }),
        ...{ providerNames, only },
        overwrites: values.overwrite,
        onProgress: (said) => progress.show(said),
        now: () => new Date(),
        pageSize: 500,
        deadAgainMs: 31_000,
      };
      const done = values['dry-run']
        ? tryPeerRun(run)
        : withImportLock(db, async (held) => {
            await held.take(environment.id);
            return runPeer({ ...run, db: held.db });
          });
      const reported = await done.catch(explain).finally(() => progress.end());
      return tell(db, { reported: [reported], path: values.report });
    });
  } finally {
    await outbound.close();
  }
}

/** Prints the report, writes it where that is asked for, and answers the exit code. */
export async function tell(
  db: Db,
  { reported, path }: { reported: readonly Reported[]; path: string | undefined },
): Promise<number> {
  for (const { report } of reported) for (const line of linesOf(report)) console.log(oneLine(line));
  if (path !== undefined) {
    await writeWhole(path, async (file) => {
      for await (const part of reportText(db, reported)) await file.writeFile(part);
    });
    console.log(`the report is in ${path}`);
  }
  return reported.every(({ report }) => isWhole(report)) ? 0 : 1;
}

/** The database, and what it takes to read and seal in it. Throws where this version does not fit it, or the master keys. */
export async function withStore<T>(
  config: Config,
  work: (store: { db: Db; reading: IntegrationReading }) => Promise<T>,
): Promise<T> {
  const vault = await readVault(config);
  return withDatabase(config, async (db) => {
    const { pending, refused } = await readMigrationState(db);
    if (pending.length > 0 || refused.length > 0)
      throw new Error(
        'The database is of another version of the service. Start this version once, then run this again.',
      );
    await proveKeyRing(db, vault.masterKeys);
    await proveStarted(db, vault.masterKeys);
    await proveEnvironmentKeys(db);
    return work({ db, reading: { vault, catalog: loadCatalog(providersDirectory), testClient: undefined } });
  });
}

/** The operator names the address, so it may be one of a network of his; secrets go in plain text within such a one alone. */
function privateRanges(): BlockList {
  const allow = new BlockList();
  for (const [range, bits] of [
    ['10.0.0.0', 8],
    ['100.64.0.0', 10],
    ['127.0.0.0', 8],
    ['172.16.0.0', 12],
    ['192.168.0.0', 16],
  ] as const)
    allow.addSubnet(range, bits, 'ipv4');
  allow.addAddress('::1', 'ipv6');
  allow.addSubnet('fc00::', 7, 'ipv6');
  return allow;
}

function explain(error: unknown): never {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (cause instanceof AppError && cause.code === 'address_not_allowed')
      throw new Error(
        '--from: http:// shows keys and tokens to every host on the way, so it is taken within private networks alone. Use https.',
      );
  }
  throw error;
}

function readAddress(given: string): string {
  const url = URL.parse(given);
  if (url === null || !/^https?:$/.test(url.protocol) || url.username || url.search || url.hash)
    throw new Error(`--from "${given}" is no address such as https://api.example.com.`);
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`;
}

function readCount(given: string): number {
  if (/^([1-9]|[1-5]\d|6[0-4])$/.test(given)) return Number(given);
  throw new Error(`--parallel "${given}" is no number from 1 to 64.`);
}

function readConsumer(given: string): string {
  if (/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/.test(given)) return given;
  throw new Error(`--consumer "${given}" is no name: A-Z a-z 0-9 . _ - alone.`);
}

function readNames(given: readonly string[]): Map<string, string> {
  return new Map(
    given.map((one) => {
      const [, theirs, ours] = /^([A-Za-z0-9_-]+)=([A-Za-z0-9_-]+)$/.exec(one) ?? [];
      if (theirs === undefined || ours === undefined)
        throw new Error(`--provider "${one}" does not read THEIRS=OURS.`);
      return [theirs, ours] as const;
    }),
  );
}

function listOf(given: string | undefined): string[] | undefined {
  const list = given
    ?.split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
  return list === undefined || list.length === 0 ? undefined : list;
}
