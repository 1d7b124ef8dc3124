import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { JWK } from 'jose';
import type { Account } from './accounts.ts';
import type { Client, Project } from './clients.ts';
import type { Grant } from './grants.ts';
import type { Receiver } from './security-events.ts';
import type { AccessToken, RefreshToken } from './tokens.ts';

/** The state that is stored on disk. Faults, call counts, codes and the clock are lost at a restart. */
interface Snapshot {
  version: 1;
  signingKey: JWK;
  accounts: Account[];
  projects: Project[];
  clients: Client[];
  grants: Grant[];
  refreshTokens: RefreshToken[];
  accessTokens: AccessToken[];
  receivers: Receiver[];
}

const fileName = 'oauth.json';

/** The snapshot of the data dir; undefined at the first start. Throws an error that names the file if it is unreadable. */
export async function readSnapshot(dataDir: string): Promise<Snapshot | undefined> {
  const file = join(dataDir, fileName);
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  let snapshot: Snapshot;
  try {
    snapshot = JSON.parse(text);
  } catch (error) {
    throw new Error(`${file} is not JSON. Delete it to start with an empty sandbox.`, { cause: error });
  }
  if (snapshot?.version !== 1)
    throw new Error(`${file} was written by another version. Delete it to start with an empty sandbox.`);
  return withDefaults(snapshot);
}

// Adds the fields that files of earlier releases lack.
function withDefaults(snapshot: Snapshot): Snapshot {
  return {
    ...snapshot,
    receivers: snapshot.receivers ?? [],
    accounts: snapshot.accounts.map((account) => ({ ...activeAccount, ...account })),
    projects: snapshot.projects.map((project) => ({ ...openProject, ...project })),
    refreshTokens: snapshot.refreshTokens.map((token) => ({
      ...token,
      consentedAt: token.consentedAt ?? token.issuedAt,
    })),
  };
}

const activeAccount = { standing: 'active' } as const;
const openProject = { audience: 'external', testUsers: [] as string[] } as const;

/**
 * A function that resolves once all changes before its call are on disk.
 *
 * Calls during a write share the next write, so that a thousand tokens issued at once need two writes. The file is replaced
 * by a rename: a crash leaves the old or the new file.
 */
export function createSave(dataDir: string, take: () => Snapshot): () => Promise<void> {
  const file = join(dataDir, fileName);
  const write = async () => {
    await mkdir(dataDir, { recursive: true });
    await writeFile(`${file}.tmp`, JSON.stringify(take()), { mode: 0o600 });
    await rename(`${file}.tmp`, file);
  };
  let running: Promise<void> = Promise.resolve();
  let next: Promise<void> | undefined;
  return () => {
    next ??= running
      .catch(() => {})
      .then(() => {
        next = undefined;
        running = write();
        return running;
      });
    return next;
  };
}
