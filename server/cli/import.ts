import { open } from 'node:fs/promises';
import { BlockList } from 'node:net';
import { UsageError } from '../../sdk/cli/arguments.ts';
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
import { createProgress, oneLine, readSecret } from './terminal.ts';

type ImportOptions = { overwrite?: true | undefined; dryRun?: true | undefined; report?: string | undefined };
type PeerOptions = ImportOptions & {
  from: string;
  environment: string;
  keyFile?: string | undefined;
  integrations?: string | undefined;
  provider?: string[] | undefined;
  records?: true | undefined;
  models?: string | undefined;
  positions?: string | undefined;
  consumer?: string | undefined;
  parallel: string;
};

/** `trellis import nango`: imports from a running Nango, also while the service runs. Exits with 1 if it is not complete. */
export async function importPeerCommand(values: PeerOptions): Promise<number> {
  const url = readAddress(values.from);
  if (values.report !== undefined) await proveWritable(values.report);
  const parallel = readCount(values.parallel);
  const providerNames = readNames(values.provider ?? []);
  const filter = values.integrations === undefined ? undefined : new Set(listOf(values.integrations));
  if (!values.records && (values.models ?? values.positions ?? values.consumer) !== undefined)
    throw new UsageError('--models, --positions and --consumer require --records.');
  const records = values.records
    ? {
        models: listOf(values.models),
        positions: values.positions === undefined ? new Map() : await readPositions(values.positions),
        consumer: readConsumer(values.consumer ?? 'imported'),
      }
    : undefined;
  const key = await readSecret({
    file: values.keyFile,
    setting: readCommandSecrets().peerKey,
    question: `Secret key of ${url}:`,
    advice: 'Give the secret key of the source with --key-file FILE or in TRELLIS_PEER_KEY.',
  });
  const config = loadConfigWithoutKeys();
  const outbound = createOutbound({
    allow: [{ addresses: privateRanges() }],
    proxy: config.outboundProxy,
  });
  try {
    return await withStore(config, async ({ db, reading }) => {
      const environment = await getEnvironment(db, values.environment);
      const progress = createProgress(process.stderr);
      const run: PeerRun = {
        db,
        reading,
        environment,
        records,
        parallel,
        baseUrl: config.baseUrl,
        peer: openPeer({ url, key, fetch: outbound.fetchFor({ isTest: false }) }),
        providerNames,
        filter,
        overwrites: values.overwrite === true,
        onProgress: progress.show,
        now: () => new Date(),
        pageSize: 500,
        deadAgainMs: 31_000,
      };
      const done = values.dryRun
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

/** `trellis import FILE`: the file that another installation has exported. Exits with 1 if the import is not complete. */
export async function importFileCommand(
  path: string,
  values: ImportOptions & { environment?: string | undefined; passphraseFile?: string | undefined },
): Promise<number> {
  const { environment: environmentName, overwrite: overwrites = false } = values;
  if (environmentName !== undefined && !/^[a-z0-9][a-z0-9_-]{0,63}$/.test(environmentName))
    throw new UsageError(`--environment "${environmentName}" is not a name: only a-z 0-9 _ - are allowed.`);
  if (values.report !== undefined) await proveWritable(values.report);
  const config = loadConfigWithoutKeys();
  const file = await open(path);
  const progress = createProgress(process.stderr);
  const onProgress = progress.show;
  try {
    const proven = await proveFile(file, {
      passphrase: await readPassphrase(values.passphraseFile),
      onProgress,
    });
    if (environmentName !== undefined && proven.head.contents.environments.length > 1)
      throw new Error('--environment is allowed only if the file contains one environment.');
    return await withStore(config, async ({ db, reading }) => {
      const run = { db, reading, environmentName, overwrites, now: () => new Date() };
      const reported = values.dryRun
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
    throw new UsageError(`--from "${given}" is not an address such as https://api.example.com.`);
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`;
}

function readCount(given: string): number {
  if (/^([1-9]|[1-5]\d|6[0-4])$/.test(given)) return Number(given);
  throw new UsageError(`--parallel "${given}" is not a number from 1 to 64.`);
}

function readConsumer(given: string): string {
  if (/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/.test(given)) return given;
  throw new UsageError(`--consumer "${given}" is not a name: only A-Z a-z 0-9 . _ - are allowed.`);
}

function readNames(given: readonly string[]): Map<string, string> {
  return new Map(
    given.map((one) => {
      const [, theirs, ours] = /^([A-Za-z0-9_-]+)=([A-Za-z0-9_-]+)$/.exec(one) ?? [];
      if (theirs === undefined || ours === undefined)
        throw new UsageError(`--provider "${one}" does not have the form THEIRS=OURS.`);
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
