// A server for a command's own work: on a copy, a draft, or a cluster whose service is stopped. Nobody else knows of it.

import { listenInTmp } from './embedded-access.ts';
import type { Account } from './embedded-account.ts';
import type { Binaries } from './embedded-binaries.ts';
import { type EmbeddedPostgres, type Log, runServer } from './embedded-run.ts';
import { endOrphan } from './embedded-server.ts';

/** Small beside the server that goes on meanwhile, and without work that nobody asked for. */
const privateSettings: Record<string, string> = {
  shared_buffers: '64MB',
  autovacuum: 'off',
};

/**
 * Lends a server on `clusterDir` to `work` and stops it afterwards. `clusterDir` is a real path, and in the hands of this
 * process alone: a server that a killed command left there is ended first.
 */
export async function withPrivateServer<T>(
  clusterDir: string,
  given: { binaries: Binaries; account: Account; log?: Log; settings?: Record<string, string> },
  work: (server: EmbeddedPostgres) => Promise<T>,
): Promise<T> {
  const { binaries, account, log = () => {} } = given;
  await endOrphan(clusterDir, log);
  const { dir, socketDir, remove } = listenInTmp(clusterDir, account);
  try {
    const server = await runServer(clusterDir, {
      ...{ accessDir: dir, socketDir, binaries, account, log },
      settings: { ...privateSettings, ...given.settings },
    });
    try {
      return await work(server);
    } finally {
      await server.stop();
    }
  } finally {
    remove();
  }
}
