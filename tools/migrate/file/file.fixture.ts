import { mkdtemp, open, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brandNames } from '../../../server/brand.ts';
import { withImportLock } from '../import-lock.ts';
import type { Installation } from '../migrate.fixture.ts';
import type { Reported } from '../report.ts';
import { exportedLines } from './export.ts';
import { type FileRun, type ProvenFile, proveFile, runFile } from './run.ts';
import { seal } from './sealed.ts';

const passphrase = 'correct horse battery';
const cost = { n: 2 ** 10, r: 8, p: 1 };
export const brand = brandNames('trellis');

type Exported = { hasRecords: boolean; hasApiKeys: boolean; now: Date };

/** The lines of a file of the installation's environment. */
export function linesFrom(
  { db, reading, environment }: Installation,
  more: Exported,
): AsyncGenerator<Buffer> {
  return exportedLines({ db, reading, environments: [environment], onProgress: () => {}, ...more }, {});
}

/** The bytes of such a file, or of one with these lines; each with another number is another one. */
export async function bytesFrom(
  of: Installation,
  more: Exported & { number: number; lines?: AsyncIterable<Buffer> },
): Promise<Buffer> {
  const { number, hasRecords, hasApiKeys, now } = more;
  const given = {
    id: `00000000-0000-4000-8000-${String(number).padStart(12, '0')}`,
    made_at: now.toISOString(),
    contents: { environments: ['prod'], records: hasRecords, api_keys: hasApiKeys },
  };
  const lines = more.lines ?? linesFrom(of, { hasRecords, hasApiKeys, now });
  return Buffer.concat(await Array.fromAsync(seal(lines, { given, passphrase, cost })));
}

export async function withFile<T>(bytes: Buffer, work: (file: ProvenFile) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'trellis-file-'));
  const path = join(folder, 'moved');
  await writeFile(path, bytes);
  const file = await open(path);
  try {
    return await work(await proveFile(file, { passphrase, onProgress: () => {} }));
  } finally {
    await file.close();
    await rm(folder, { recursive: true });
  }
}

/** What an import of the file came to. */
export function takeFile(
  { db, reading }: Installation,
  bytes: Buffer,
  more: Partial<FileRun> & Pick<FileRun, 'now'>,
): Promise<Reported[]> {
  return withFile(bytes, (file) =>
    withImportLock(db, (held) =>
      runFile(
        {
          ...held,
          reading,
          brand,
          baseUrl: 'https://new.example.com',
          environmentName: undefined,
          overwrites: false,
          onProgress: () => {},
          ...more,
        },
        file,
      ),
    ),
  );
}
