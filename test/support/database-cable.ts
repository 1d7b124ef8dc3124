// A way to the database that can be cut.

import { type AddressInfo, createServer, connect as openSocket, type Socket } from 'node:net';
import { join } from 'node:path';
import type { DbTarget } from '../../server/db/pool.ts';

export type DatabaseCable = {
  /** The same database, through the cable. */
  target: DbTarget;
  /** Breaks all connections, and every new one until `plug`. */
  pull(): void;
  /** Ends `pull` and `crash`. */
  plug(): void;
  /** Refuses every new connection with the server's error for too many connections. */
  crowd(): void;
  /** Connections that are opened from now on lead on after so long. */
  delay(ms: number): void;
  /** No answer comes through the connections that are open; they stay so. */
  silence(): void;
  /** From now on each answer ends with an error that ends its connection, in the same packet. */
  crash(): void;
  /** The next statement that holds `text` gets through, and its connection breaks when the server answers. */
  loseAnswerTo(text: string): void;
  close(): Promise<void>;
};

export async function openDatabaseCable(target: DbTarget): Promise<DatabaseCable> {
  const sockets = new Set<Socket>();
  const farEnds = new Set<Socket>();
  let isPulled = false;
  let isCrowded = false;
  let isCrashing = false;
  let delayMs = 0;
  let lostText: string | undefined;
  const server = createServer((socket) => {
    const far = openSocket(addressOf(target));
    farEnds.add(far);
    far.on('close', () => farEnds.delete(far));
    for (const [one, other] of [
      [socket, far],
      [far, socket],
    ] as const) {
      sockets.add(one);
      one.on('error', () => other.destroy());
      one.on('close', () => {
        sockets.delete(one);
        other.destroy();
      });
    }
    socket.on('data', (bytes: Buffer) => {
      if (lostText !== undefined && bytes.includes(lostText)) {
        lostText = undefined;
        far.removeAllListeners('data').once('data', () => socket.destroy());
      }
      far.write(bytes);
    });
    far.on('data', (bytes: Buffer) => {
      const isWhole = bytes.subarray(-6, -1).equals(readyForQuery);
      socket.write(isCrashing && isWhole ? Buffer.concat([bytes, crashed]) : bytes);
    });
    if (delayMs > 0) {
      socket.pause();
      setTimeout(() => socket.resume(), delayMs);
    }
    if (isPulled) socket.destroy();
    if (isCrowded) {
      far.destroy();
      socket.end(tooManyConnections);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    target: through(target, port),
    pull() {
      isPulled = true;
      for (const socket of sockets) socket.destroy();
    },
    plug() {
      isPulled = false;
      isCrashing = false;
    },
    crowd() {
      isCrowded = true;
    },
    delay(ms) {
      delayMs = ms;
    },
    silence() {
      for (const far of farEnds) far.pause();
    },
    crash() {
      isCrashing = true;
    },
    loseAnswerTo(text) {
      lostText = text;
    },
    close() {
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

/** An ErrorResponse (PostgreSQL, 53.7 and appendix A). */
function fatal(code: string, message: string): Buffer {
  const fields = Buffer.from(`SFATAL\0C${code}\0M${message}\0\0`);
  const head = Buffer.from('E\0\0\0\0');
  head.writeInt32BE(fields.length + 4, 1);
  return Buffer.concat([head, fields]);
}

const tooManyConnections = fatal('53300', 'sorry, too many clients already');
/** As PgBouncer reports it. */
const crashed = fatal('08P01', 'server conn crashed?');
/** Without the state of the transaction, its last byte. */
const readyForQuery = Buffer.from('Z\0\0\0\x05');

function addressOf(target: DbTarget): { path: string } | { host: string; port: number } {
  if ('url' in target) {
    const { hostname, port } = new URL(target.url);
    return { host: hostname, port: Number(port || 5432) };
  }
  const { host, port } = target;
  return host.startsWith('/') ? { path: join(host, `.s.PGSQL.${port}`) } : { host, port };
}

function through(target: DbTarget, port: number): DbTarget {
  if (!('url' in target)) return { ...target, host: '127.0.0.1', port };
  const url = new URL(target.url);
  url.host = `127.0.0.1:${port}`;
  return { url: url.href };
}
