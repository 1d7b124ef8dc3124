import { open } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { loadConfigWithoutKeys } from '../config/config.ts';
import { proveFile, runFile } from '../moving/file/run.ts';
import { tryFile } from '../moving/file/try.ts';
import { withImportLock } from '../moving/import-lock.ts';
import { proveWritable } from '../whole-file.ts';
import { readPassphrase } from './export.ts';
import { tell, withStore } from './import.ts';
import { createProgress } from './progress.ts';

const flag = { type: 'boolean', default: false } as const;
const text = { type: 'string' } as const;

/** `trellis import FILE`: what another installation has exported. */
export async function importFileCommand(args: string[], usage: string): Promise<number> {
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
    throw new Error(`--environment "${environmentName}" is no name: a-z 0-9 _ - alone.`);
  if (values.report !== undefined) await proveWritable(values.report);
  const config = loadConfigWithoutKeys();
  const file = await open(path);
  const progress = createProgress(process.stderr);
  const onProgress = (said: string) => progress.show(said);
  try {
    const proven = await proveFile(file, {
      passphrase: await readPassphrase(values['passphrase-file']),
      onProgress,
    });
    if (environmentName !== undefined && proven.head.contents.environments.length > 1)
      throw new Error('--environment is for a file of one environment.');
    return await withStore(config, async ({ db, reading }) => {
      const run = { db, reading, environmentName, overwrites, now: () => new Date() };
      const reported = values['dry-run']
        ? await tryFile(run, proven)
        : await withImportLock(db, (held) =>
            runFile({ ...run, ...held, brand: config.brand, baseUrl: config.baseUrl, onProgress }, proven),
          );
      progress.end();
      return tell(db, { reported, path: values.report });
    });
  } finally {
    progress.end();
    await file.close();
  }
}
