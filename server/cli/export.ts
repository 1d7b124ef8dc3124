import { randomUUID } from 'node:crypto';
import { UsageError } from '../../sdk/cli/arguments.ts';
import { exportedLines } from '../../tools/migrate/file/export.ts';
import { seal } from '../../tools/migrate/file/sealed.ts';
import { writeCommandAudit } from '../activity/audit.ts';
import { loadConfigWithoutKeys, readCommandSecrets } from '../config/config.ts';
import type { Db } from '../db/pool.ts';
import { type Environment, getEnvironment, listEnvironments } from '../environments/store.ts';
import { writeWhole } from '../whole-file.ts';
import { withStore } from './database.ts';
import { createProgress, readSecret } from './terminal.ts';

const minPassphrase = 12;

type ExportOptions = {
  to: string;
  environment?: string | undefined;
  all?: true | undefined;
  records?: true | undefined;
  apiKeys?: true | undefined;
  passphraseFile?: string | undefined;
};

/** `trellis export`: the contents of environments, sealed with a passphrase, also while the service runs. */
export async function exportCommand(options: ExportOptions): Promise<number> {
  const { to, environment, records: hasRecords = false, apiKeys: hasApiKeys = false } = options;
  if ((environment === undefined) === (options.all === undefined))
    throw new UsageError('Give either --environment NAME or --all.');
  const passphrase = await readPassphrase(options.passphraseFile);
  if ([...passphrase].length < minPassphrase)
    throw new Error(
      `The passphrase has fewer than ${minPassphrase} characters. Generate one: openssl rand -base64 24`,
    );
  const config = loadConfigWithoutKeys();
  return withStore(config, async ({ db, reading }) => {
    const environments = await environmentsOf(db, environment);
    const progress = createProgress(process.stderr);
    const counts: Record<string, number> = {};
    const lines = exportedLines(
      {
        db,
        reading,
        environments,
        now: new Date(),
        hasRecords,
        hasApiKeys,
        onProgress: ({ connection = 0, record = 0 }) =>
          progress.show(`${connection} connections and ${record} records written`),
      },
      counts,
    );
    const given = {
      id: randomUUID(),
      made_at: new Date().toISOString(),
      contents: {
        environments: environments.map(({ name }) => name),
        records: hasRecords,
        api_keys: hasApiKeys,
      },
    };
    await writeWhole(to, async (file) => {
      for await (const bytes of seal(lines, { given, passphrase })) await file.writeFile(bytes);
      await audit(db, { environments, id: given.id, counts });
    }).finally(() => progress.end());
    for (const kind of ['integration', 'connection', 'record', 'api_key'])
      if (counts[kind] !== undefined) console.log(`${counts[kind]} ${kind.replace('_', ' ')}s`);
    console.log(`written to ${to}; the file and its passphrase give access to all of these credentials`);
    console.log(
      'Before another installation uses them, make sure that this one no longer refreshes tokens (docs/guides/export-and-import.md).',
    );
    return 0;
  });
}

/** From `--passphrase-file`, the setting, or the terminal. */
export function readPassphrase(file: string | undefined): Promise<string> {
  return readSecret({
    file,
    setting: readCommandSecrets().passphrase,
    question: 'Passphrase of the file:',
    advice: 'Give the passphrase with --passphrase-file FILE or in TRELLIS_EXPORT_PASSPHRASE.',
  });
}

async function environmentsOf(db: Db, name: string | undefined): Promise<Environment[]> {
  if (name !== undefined) return [await getEnvironment(db, name)];
  const all = await listEnvironments(db);
  return Promise.all(all.map((one) => getEnvironment(db, one.name)));
}

async function audit(
  db: Db,
  { environments, id, counts }: { environments: Environment[]; id: string; counts: Record<string, number> },
): Promise<void> {
  for (const { id: environmentId, name } of environments)
    await writeCommandAudit(db, {
      environmentId,
      action: 'environment.exported',
      target: name,
      details: { file: id, connections: counts.connection ?? 0, records: counts.record ?? 0 },
    });
}
