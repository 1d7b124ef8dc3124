// A server for the work of one command: on a copy, a draft, or a cluster without a service. No other process finds it.

import { listenInTmp } from './access.ts';
import type { Account } from './account.ts';
import type { Binaries } from './binaries.ts';
import { type EmbeddedPostgres, type Log, runServer } from './run.ts';
import { endOrphan } from './server.ts';

/** Little memory, since another server may run meanwhile, and no background work. */
const privateSettings: Record<string, string> = {
  shared_buffers: '64MB',
  autovacuum: 'off',
};

/**
 * Lends a server on `clusterDir` to `work` and stops it afterwards. `clusterDir` is a real path that no other process uses: the
 * server of a killed command is ended first.
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
      accessDir: dir,
      socketDir,
      binaries,
      account,
      log,
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
