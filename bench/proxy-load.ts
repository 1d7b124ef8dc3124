/**
 * A load on bare sockets: one request after the other on each connection, and nothing parsed but where an answer ends.
 *
 * A client library would cost as much per request as what is measured, and share the upstream's core with it.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

export type Target = { name: string; url: string; headers?: Record<string, string>; pid: number };
type Load = { requests: number; elapsedMs: number; timesMs: number[] };

/** Asks for the same thing over and over for so many seconds. Throws at any answer but 200. */
export async function load(
  { url, headers = {} }: Pick<Target, 'url' | 'headers'>,
  { connections, seconds }: { connections: number; seconds: number },
): Promise<Load> {
  const { hostname, port, pathname, host } = new URL(url);
  const lines = Object.entries({ host, ...headers }).map(([name, value]) => `${name}: ${value}`);
  const request = Buffer.from(`GET ${pathname} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`, 'latin1');
  const sockets = await Promise.all(
    Array.from({ length: connections }, async () => {
      const socket = connect(Number(port), hostname).setNoDelay();
      await once(socket, 'connect');
      return socket;
    }),
  );
  const startedAt = performance.now();
  const until = startedAt + seconds * 1000;
  const timesMs: number[] = [];
  await Promise.all(sockets.map((socket) => askUntil(socket, { request, until, timesMs })));
  return { requests: timesMs.length, elapsedMs: performance.now() - startedAt, timesMs };
}

function askUntil(
  socket: Socket,
  { request, until, timesMs }: { request: Buffer; until: number; timesMs: number[] },
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let sentAt = performance.now();
  let seenBytes = 0;
  /** Whole length of an answer, known from the first: all of them are alike. */
  let answerBytes: number | undefined;
  socket.on('error', reject).on('close', () => reject(new Error('the connection ended')));
  socket.on('data', (chunk: Buffer) => {
    if (seenBytes === 0) {
      if (chunk.toString('latin1', 9, 12) !== '200') {
        reject(new Error(chunk.toString('latin1', 0, 500)));
        return;
      }
      answerBytes = lengthOf(chunk) ?? answerBytes;
    }
    seenBytes += chunk.length;
    if (answerBytes === undefined || seenBytes < answerBytes) return;
    const now = performance.now();
    timesMs.push(now - sentAt);
    seenBytes = 0;
    if (now >= until) {
      socket.removeAllListeners('close').destroy();
      resolve();
    } else {
      sentAt = now;
      socket.write(request);
    }
  });
  socket.write(request);
  return promise;
}

function lengthOf(chunk: Buffer): number | undefined {
  const end = chunk.indexOf('\r\n\r\n');
  const [, length] = /\r\ncontent-length: (\d+)/i.exec(chunk.toString('latin1', 0, end)) ?? [];
  return length === undefined ? undefined : end + 4 + Number(length);
}

/** Reads one body to its end: bytes and time. */
export async function download(
  target: Pick<Target, 'url' | 'headers'>,
): Promise<{ bytes: number; elapsedMs: number }> {
  const { hostname, port, pathname, host } = new URL(target.url);
  const lines = Object.entries({ host, connection: 'close', ...target.headers }).map(
    ([name, value]) => `${name}: ${value}`,
  );
  const socket = connect(Number(port), hostname);
  const startedAt = performance.now();
  socket.write(`GET ${pathname} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
  let bytes = 0;
  for await (const chunk of socket) bytes += (chunk as Buffer).length;
  return { bytes, elapsedMs: performance.now() - startedAt };
}

/** Holds so many answers open that come drop by drop; resolves once each has begun. */
export async function holdStreams(
  target: Pick<Target, 'url' | 'headers'>,
  count: number,
): Promise<() => void> {
  const { hostname, port, pathname, host } = new URL(target.url);
  const lines = Object.entries({ host, ...target.headers }).map(([name, value]) => `${name}: ${value}`);
  const sockets = await Promise.all(
    Array.from({ length: count }, async () => {
      const socket = connect(Number(port), hostname);
      socket.write(`GET ${pathname} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
      const [first] = (await once(socket, 'data')) as [Buffer];
      if (first.toString('latin1', 9, 12) !== '200') throw new Error(first.toString('latin1', 0, 500));
      return socket.resume();
    }),
  );
  return () => {
    for (const socket of sockets) socket.destroy();
  };
}
