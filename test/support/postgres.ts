// A PostgreSQL on a port of this machine, with a password, which can be ended the hard way and started again.

import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Account } from '../../server/db/embedded/account.ts';
import { freePort } from './ports.ts';
import { processesBeneath } from './processes.ts';
import { endProgram, type Program, startProgram, untilReady, writeReadable } from './programs.ts';

export type Postgres = {
  /** Of the database `postgres`, with the password. */
  url: string;
  /**
   * Ends it and starts it again `afterMs` later (0 by default), on the same port. `immediate`: as in a crash, so that it
   * recovers from its log.
   */
  restart(how: 'fast' | 'immediate', options?: { afterMs?: number }): Promise<void>;
  /** Stops all its processes for this time. */
  freeze(ms: number): Promise<void>;
  stop(): Promise<void>;
};

/** What a cluster is made of and where; the account has to be able to enter `dir`. */
type Making = {
  /** Holds initdb and postgres. */
  binDir: string;
  libraryPath?: string;
  dir: string;
  account: Account;
  user: string;
  password: string;
  settings?: Record<string, string>;
  signal?: AbortSignal | undefined;
};

/** Makes a cluster and starts its server. Nothing in it outlives a power cut. */
export async function startPostgres(making: Making): Promise<Postgres> {
  const { binDir, libraryPath = '', dir, account, user, password, signal } = making;
  const clusterDir = path.join(dir, 'data');
  const passwordFile = path.join(dir, 'password');
  writeReadable(passwordFile, `${password}\n`, account);
  const initdb = startProgram(
    [
      path.join(binDir, 'initdb'),
      '--pgdata',
      clusterDir,
      '--username',
      user,
      '--pwfile',
      passwordFile,
      '--auth=scram-sha-256',
      '--encoding=UTF8',
      '--locale=C',
      '--no-sync',
      '--no-instructions',
    ],
    { account, libraryPath },
  );
  if ((await initdb.guarded.exited) !== 0) throw new Error(`initdb failed: ${initdb.output()}`);
  const port = await freePort();
  const settings = {
    listen_addresses: '127.0.0.1',
    port: String(port),
    unix_socket_directories: '',
    fsync: 'off',
    max_connections: '400',
    ...making.settings,
  };
  const pidFile = path.join(clusterDir, 'postmaster.pid');
  const read = () => (existsSync(pidFile) ? readFileSync(pidFile, 'utf8') : '');
  const run = async (): Promise<Program> => {
    const before = read();
    const program = startProgram(
      [
        path.join(binDir, 'postgres'),
        '-D',
        clusterDir,
        ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
      ],
      { account, libraryPath },
    );
    const isReady = async () => read() !== before && /^ready/m.test(read());
    await untilReady(program, { isReady, signal });
    return program;
  };
  let server = await run();
  return {
    url: `postgresql://${user}:${password}@127.0.0.1:${port}/postgres`,
    async restart(how, { afterMs = 0 } = {}) {
      server.guarded.order(how === 'immediate' ? 'QUIT' : 'INT');
      await server.guarded.exited;
      await sleep(afterMs);
      server = await run();
    },
    async freeze(ms) {
      const pid = Number(read().split('\n')[0]);
      const all = [pid, ...(await processesBeneath(pid))];
      const signal = (name: NodeJS.Signals) => {
        for (const one of all) {
          try {
            process.kill(one, name);
          } catch {
            // It has ended.
          }
        }
      };
      signal('SIGSTOP');
      await sleep(ms);
      signal('SIGCONT');
    },
    stop: () => endProgram(server),
  };
}
