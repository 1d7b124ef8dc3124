import { open } from 'node:fs/promises';
import { BlockList } from 'node:net';
import { type ParseArgsOptionsConfig, parseArgs } from 'node:util';
import { proveFile, runFile, tryFile } from '../../tools/migrate/file/run.ts';
import { withImportLock } from '../../tools/migrate/import-lock.ts';
import { openPeer } from '../../tools/migrate/peer/client.ts';
import { readPositions } from '../../tools/migrate/peer/records.ts';
import { type PeerRun, runPeer, tryPeerRun } from '../../tools/migrate/peer/run.ts';
import { isWhole, linesOf, type Reported, reportText } from '../../tools/migrate/report.ts';
import { loadConfigWithoutKeys, readCommandSecrets } from '../config/config.ts';
import type { Db } from '../db/pool.ts';
import { getEnvironment } from '../environments/store.ts';
import { AppError } from '../errors.ts';
import { createOutbound } from '../outbound/outbound.ts';
import { proveWritable, writeWhole } from '../whole-file.ts';
import { withStore } from './database.ts';
import { readPassphrase } from './export.ts';
import { createProgress, flag, oneLine, readSecret, text } from './terminal.ts';

const usage = `The command is one of:

  import nango --from URL --environment NAME [--key-file FILE] [--integrations a,b] [--provider THEIRS=OURS]...
               [--records [--models A,B] [--positions FILE [--consumer NAME]]] [--overwrite] [--parallel 8]
               [--dry-run] [--report FILE]
  import FILE [--environment NAME] [--passphrase-file FILE] [--overwrite] [--dry-run] [--report FILE]`;

/**
 * `trellis import`: imports from a running Nango or a file, also while the service runs. Exits with 1 if the import is not
 * complete.
 */
export async function importCommand(args: string[]): Promise<number> {
  if (args.includes('--help')) {
    console.log(usage);
    return 0;
  }
  if (args[0] === 'nango') return importPeerCommand(args.slice(1));
  return importFileCommand(args);
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
  const filter = values.integrations === undefined ? undefined : new Set(listOf(values.integrations));
  if (!values.records && (values.models ?? values.positions ?? values.consumer) !== undefined)
    throw new Error('--models, --positions and --consumer require --records.');
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
    advice: 'Give the secret key of the source with --key-file FILE or in TRELLIS_PEER_KEY.',
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
        ...{ providerNames, filter },
        overwrites: values.overwrite,
        onProgress: progress.show,
        now: () => new Date(),
        pageSize: 500,
        deadAgainMs: 31_000,
      };
      const done = values['dry-run']
        ? tryPeerRun(run)
        : withImportLock(db, async (lock) => {
            await lock.take(environment.id);
            return runPeer({ ...run, db: lock.db });
          });
      const reported = await done.catch(explain).finally(() => progress.end());
      return printReport(db, { reported: [reported], path: values.report });
    });
  } finally {
    await outbound.close();
  }
}

/** `trellis import FILE`: the file that another installation has exported. */
async function importFileCommand(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      ...{ environment: text, 'passphrase-file': text, report: text },
      ...{ overwrite: flag, 'dry-run': flag },
    },
  });
  const [path] = positionals;
  if (path === undefined || positionals.length > 1) throw new Error(usage);
  const { environment: environmentName, overwrite: overwrites } = values;
  if (environmentName !== undefined && !/^[a-z0-9][a-z0-9_-]{0,63}$/.test(environmentName))
    throw new Error(`--environment "${environmentName}" is not a name: only a-z 0-9 _ - are allowed.`);
  if (values.report !== undefined) await proveWritable(values.report);
  const config = loadConfigWithoutKeys();
  const file = await open(path);
  const progress = createProgress(process.stderr);
  const onProgress = progress.show;
  try {
    const proven = await proveFile(file, {
      passphrase: await readPassphrase(values['passphrase-file']),
      onProgress,
    });
    if (environmentName !== undefined && proven.head.contents.environments.length > 1)
      throw new Error('--environment is allowed only if the file contains one environment.');
    return await withStore(config, async ({ db, reading }) => {
      const run = { db, reading, environmentName, overwrites, now: () => new Date() };
      const reported = values['dry-run']
        ? await tryFile(run, proven)
        : await withImportLock(db, (lock) =>
            runFile({ ...run, ...lock, brand: config.brand, baseUrl: config.baseUrl, onProgress }, proven),
          );
      progress.end();
      return printReport(db, { reported, path: values.report });
    });
  } finally {
    progress.end();
    await file.close();
  }
}

/** Prints the report, writes it to `path`, and returns the exit code. */
async function printReport(
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

/** The operator gives the address, so private networks are allowed. Only there may secrets be sent in plain text. */
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
        '--from: http:// exposes keys and tokens on the network, so it is allowed only in private networks. Use https.',
      );
  }
  throw error;
}

function readAddress(given: string): string {
  const url = URL.parse(given);
  if (url === null || !/^https?:$/.test(url.protocol) || url.username || url.search || url.hash)
    throw new Error(`--from "${given}" is not an address such as https://api.example.com.`);
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`;
}

function readCount(given: string): number {
  if (/^([1-9]|[1-5]\d|6[0-4])$/.test(given)) return Number(given);
  throw new Error(`--parallel "${given}" is not a number from 1 to 64.`);
}

function readConsumer(given: string): string {
  if (/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/.test(given)) return given;
  throw new Error(`--consumer "${given}" is not a name: only A-Z a-z 0-9 . _ - are allowed.`);
}

function readNames(given: readonly string[]): Map<string, string> {
  return new Map(
    given.map((one) => {
      const [, theirs, ours] = /^([A-Za-z0-9_-]+)=([A-Za-z0-9_-]+)$/.exec(one) ?? [];
      if (theirs === undefined || ours === undefined)
        throw new Error(`--provider "${one}" does not have the form THEIRS=OURS.`);
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
