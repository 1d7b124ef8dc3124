// PgBouncer in transaction mode in front of a PostgreSQL.

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import type { Account } from '../../server/db/embedded/account.ts';
import { freePort } from './ports.ts';
import {
  endProgram,
  isListening,
  type Program,
  startProgram,
  untilReady,
  writeReadable,
} from './programs.ts';

export type PgBouncer = {
  /** As that of the server, through it. */
  url: string;
  /** As an operator restarts it: all its connections break. */
  restart(): Promise<void>;
  stop(): Promise<void>;
};

/** The program, where one is installed. Throws where it is older than 1.18. */
export function findPgbouncer(): string | undefined {
  const pgbouncer = ['/usr/sbin/pgbouncer', '/usr/bin/pgbouncer'].find((file) => existsSync(file));
  if (!pgbouncer) return undefined;
  const [, major, minor] = /(\d+)\.(\d+)/.exec(versionOf(pgbouncer)) ?? [];
  if (Number(major) * 1000 + Number(minor) >= 1018) return pgbouncer;
  throw new Error(`${versionOf(pgbouncer)} is too old: 1.18 or newer is needed`);
}

/** The first line of what a program says of itself. */
export function versionOf(program: string): string {
  return execFileSync(program, ['--version'], { encoding: 'utf8' }).split('\n')[0]!;
}

/** Starts one for the user and all databases of `server`, an address with a password. */
export async function startPgbouncer({
  pgbouncer,
  dir,
  account,
  server,
  signal,
}: {
  pgbouncer: string;
  dir: string;
  account: Account;
  server: string;
  signal?: AbortSignal | undefined;
}): Promise<PgBouncer> {
  const { hostname, port: serverPort, username, password } = new URL(server);
  const port = await freePort();
  const usersFile = path.join(dir, 'users.txt');
  writeReadable(usersFile, `"${username}" "${password}"\n`, account);
  const configFile = path.join(dir, 'pgbouncer.ini');
  // Round robin: the next transaction of a client seldom gets the server connection of its last one, so
  // that session state, where any is relied upon, is missed at once. Unless told otherwise it refuses everybody for
  // 15 s where a server that is started just then did not take one connection.
  const config = `
[databases]
* = host=${hostname} port=${serverPort}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = ${usersFile}
pool_mode = transaction
server_round_robin = 1
default_pool_size = 20
max_client_conn = 1000
query_wait_timeout = 15
server_login_retry = 1
tcp_user_timeout = 30000
log_connections = 0
log_disconnections = 0
`;
  writeReadable(configFile, config, account);
  const run = async (): Promise<Program> => {
    const program = startProgram([pgbouncer, configFile], { account });
    await untilReady(program, { isReady: () => isListening(port), signal });
    return program;
  };
  let bouncer = await run();
  const through = new URL(server);
  through.port = String(port);
  return {
    url: through.href,
    async restart() {
      await endProgram(bouncer);
      bouncer = await run();
    },
    stop: () => endProgram(bouncer),
  };
}
