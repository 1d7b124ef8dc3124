import { dirname, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { keyFileOf } from '../backup/backup-directory.ts';
import { restoreBackup, tryBackup } from '../backup/restore.ts';
import { loadConfigWithoutKeys } from '../config/config.ts';
import { tellStep } from './backup.ts';
import { readKeyFile } from './key-file.ts';
import { readVault, tell } from './keys.ts';
import { createProgress } from './progress.ts';

const usage = 'The command is: restore --from BACKUP [--keys FILE] [--dry-run] [--drop-newer] [--back].';
const flag = { type: 'boolean', default: false } as const;

/** `trellis restore`: a backup of the embedded database into a DATA_DIR that has none, ready for a start. */
export async function restoreCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      ...{ from: { type: 'string' }, keys: { type: 'string' } },
      ...{ 'dry-run': flag, 'drop-newer': flag, back: flag },
    },
  });
  if (values.from === undefined) throw new Error(usage);
  const config = loadConfigWithoutKeys();
  if (config.databaseUrl !== undefined) throw new Error(adviceForExternal);
  const backup = resolve(values.from);
  const vault = await readVault(config);
  const keyFile = await readKeyFile(values.keys ?? keyFileOf(dirname(backup)));
  const progress = createProgress(process.stderr);
  const isTrial = values['dry-run'];
  const { madeAt, keys, raised } = await (isTrial ? tryBackup : restoreBackup)({
    ...{ backup, keyFile, vault, dataDir: config.dataDir },
    ...{ dropsNewer: values['drop-newer'], goesBack: values.back },
    log: (message) => console.error(message),
    onProgress: (done) => progress.show(tellStep({ doing: 'copied', ...done })),
  }).finally(() => progress.end());
  console.log(`the data of ${madeAt.toISOString()} ${isTrial ? 'can be' : 'are'} restored`);
  tell(keys);
  if (isTrial) console.log('nothing was changed');
  else console.log(`positions of ${raised.datasets} datasets and of the feed raised; the service may start`);
  return 0;
}

const adviceForExternal = `DATABASE_URL names a PostgreSQL of your own, which is restored by its own programs:

  pg_restore --no-owner --dbname=service=trellis data.dump
  trellis keys restore data.keys
  trellis restored

docs/operations/backup.md says what each does, and which file names the service.`;
