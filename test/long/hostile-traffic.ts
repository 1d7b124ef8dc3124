import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { constants, setPriority } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { startRunningService } from '../support/service.ts';
import type { Probed } from './hostile-probe.ts';

/** How much of each. */
type Strength = {
  /** Sockets of those who send their headers slowly. */
  slow: number;
  /** Sockets of those who have called once and stay. */
  idle: number;
  bodyMb: number;
  /** Of everything else. */
  atOnce: number;
  /** What an attack lasts. */
  holdMs: number;
};

export type Seen = { attack: string; probed: Probed; rssMb: number; sockets: number };

/** Puts a service under one attack after the other, and tells what others saw of it meanwhile. */
export async function attack(
  strength: Strength,
  onSeen: (seen: Seen) => void,
): Promise<{ restMb: number; afterMb: number }> {
  const max = strength.idle + 500;
  const service = await startRunningService({
    env: { TRELLIS_MAX_CONNECTIONS: String(max), LOG_LEVEL: 'warn' },
  });
  const probe = fork(join(import.meta.dirname, 'hostile-probe.ts'), [service.baseUrl, service.secretKey]);
  // An attacker from outside takes nothing of this machine: the others have it first.
  setPriority(constants.priority.PRIORITY_LOW);
  const sockets = new Set<Socket>();
  const target = { ...service, sockets, strength };
  try {
    // What a start leaves is collected in its first seconds.
    await pause(3_000);
    await readProbe(probe);
    const restMb = await rssMb(service.pid);
    for (const [name, work] of Object.entries(attacks)) {
      await work(target);
      onSeen({
        attack: name,
        probed: await readProbe(probe),
        rssMb: await rssMb(service.pid),
        sockets: sockets.size,
      });
      await leave(sockets);
      await readProbe(probe);
    }
    return { restMb, afterMb: await rssMb(service.pid) };
  } finally {
    for (const socket of sockets) socket.destroy();
    probe.disconnect();
    await once(probe, 'exit');
    await service.stop();
  }
}

/** A hundred at a time: ten thousand that go in one moment are an attack of another kind. */
async function leave(sockets: Set<Socket>): Promise<void> {
  const left = [...sockets];
  while (left.length > 0) {
    for (const socket of left.splice(0, 100)) socket.destroy();
    await pause(10);
  }
  sockets.clear();
  await pause(300);
}

type Target = { baseUrl: string; secretKey: string; sockets: Set<Socket>; strength: Strength };

async function readProbe(probe: ReturnType<typeof fork>): Promise<Probed> {
  probe.send('tell');
  const [probed] = (await once(probe, 'message')) as [Probed];
  return probed;
}

async function rssMb(pid: number): Promise<number> {
  const [, kb] = /^VmRSS:\s+(\d+) kB$/m.exec(await readFile(`/proc/${pid}/status`, 'utf8')) ?? [];
  return Number(kb) / 1024;
}

const attacks: Record<string, (target: Target) => Promise<void>> = {
  nothing: ({ strength }) => pause(strength.holdMs),
  'slow headers': async (target) => {
    const { slow, holdMs } = target.strength;
    const slowOnes = await openMany(target, slow);
    for (const socket of slowOnes) socket.write('GET /integrations HTTP/1.1\r\nHost: a\r\n');
    for (let left = holdMs; left > 0; left -= 500) {
      for (const socket of slowOnes) if (socket.writable) socket.write('X-More: a\r\n');
      await pause(500);
    }
  },
  'idle sockets': async (target) => {
    const { idle, holdMs } = target.strength;
    for (let left = idle; left > 0; left -= 100) {
      await Promise.all(
        (await openMany(target, Math.min(100, left))).map(async (socket) => {
          socket.write('GET /health HTTP/1.1\r\nHost: a\r\n\r\n');
          await once(socket, 'data', { signal: AbortSignal.timeout(10_000) }).catch(() => {});
        }),
      );
    }
    await pause(holdMs);
  },
  'large bodies': async (target) => {
    const bytes = target.strength.bodyMb * 1024 * 1024;
    const paths = ['POST /integrations', 'POST /records', 'PATCH /records', 'POST /webhook/dev/none'];
    await Promise.all(
      paths.flatMap((path) =>
        (['length', 'chunks'] as const).map((framing) => sendLarge(target, { path, bytes, framing })),
      ),
    );
  },
  'compressed bombs': (target) => {
    const bomb = gzipSync(Buffer.alloc(32 * 1024 * 1024, ' '));
    const head = headOf(
      target,
      'POST /integrations',
      `Content-Encoding: gzip\r\nContent-Length: ${bomb.length}\r\n`,
    );
    return repeat(target, () => exchange(target, [head, bomb]));
  },
  'hostile JSON': (target) => {
    const bodies = hostileJson();
    return repeat(target, (at) => {
      const body = bodies[at % bodies.length] as string;
      const head = headOf(target, 'POST /integrations', `Content-Length: ${Buffer.byteLength(body)}\r\n`);
      return exchange(target, [head, body]);
    });
  },
  headers: (target) => {
    const lines = (count: number, line: (at: number) => string) =>
      Array.from({ length: count }, (_, at) => `${line(at)}\r\n`).join('');
    const floods = [
      lines(900, (at) => `X-${at}: a`),
      lines(5_000, (at) => `X-${at}: a`),
      lines(900, () => 'Cookie: a=b'),
      `X-Long: ${'a'.repeat(15_000)}\r\n`,
      `X-Long: ${'a'.repeat(500_000)}\r\n`,
      lines(400, () => 'X-Forwarded-For: 1.2.3.4, 5.6.7.8'),
    ];
    return repeat(target, (at) =>
      exchange(target, [headOf(target, 'GET /integrations', floods[at % floods.length] as string)]),
    );
  },
  'requests ahead': (target) => {
    const many = 'GET /health HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(5_000);
    return repeat(target, () => exchange(target, [many], 500));
  },
  resets: (target) =>
    repeat(target, async (at) => {
      const [socket] = await openMany(target, 1);
      if (at % 2 === 0) socket?.write('GET /integrations HTTP/1.1\r\nHo');
      socket?.resetAndDestroy();
    }),
  upgrades: (target) => {
    const head = `GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${btoa('0123456789abcdef')}\r\n\r\n`;
    return repeat(target, () => exchange(target, [head], 50));
  },
};

/** A megabyte each, of what parsers like least. */
function hostileJson(): string[] {
  const bytes = 1_000_000;
  return [
    '['.repeat(bytes / 2) + ']'.repeat(bytes / 2),
    `${'{"a":'.repeat(bytes / 6)}1${'}'.repeat(bytes / 6)}`,
    `{${Array.from({ length: bytes / 14 }, (_, at) => `"k${at}":${at}`).join(',')}}`,
    `{"unique_key":"${'\\u0041'.repeat(bytes / 6)}"}`,
    `[${'1e308,'.repeat(bytes / 6)}1]`,
    `{"a":${'9'.repeat(bytes)}}`,
    `{"provider":"${'x'.repeat(bytes)}"}`,
    `{"tags":{${Array.from({ length: bytes / 20 }, (_, at) => `"__proto__${at}":"${at}"`).join(',')}}}`,
  ];
}

function headOf({ secretKey }: Target, start: string, lines: string): string {
  const place = 'Connection-Id: none\r\nProvider-Config-Key: none\r\n';
  const type = 'Content-Type: application/json\r\n';
  return `${start} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${secretKey}\r\n${place}${type}${lines}\r\n`;
}

/** Some at a time, again and again until the time is over. */
async function repeat({ strength }: Target, work: (at: number) => Promise<void>): Promise<void> {
  const untilMs = performance.now() + strength.holdMs;
  let next = 0;
  const worker = async () => {
    do {
      await work(next++);
      await pause(20);
    } while (performance.now() < untilMs);
  };
  await Promise.all(Array.from({ length: strength.atOnce }, worker));
}

/** Those that came to be; the ones that were ended since are in there, too. */
async function openMany(target: Target, count: number): Promise<Socket[]> {
  const { hostname, port } = new URL(target.baseUrl);
  const opened: Socket[] = [];
  for (let left = count; left > 0; left -= 200) {
    const some = Array.from({ length: Math.min(200, left) }, () =>
      connect(Number(port), hostname === 'localhost' ? '127.0.0.1' : hostname),
    );
    await Promise.all(
      some.map(async (socket) => {
        target.sockets.add(socket);
        socket.on('close', () => target.sockets.delete(socket)).resume();
        socket.on('error', () => {});
        await Promise.race([once(socket, 'connect'), once(socket, 'close')]).catch(() => {});
      }),
    );
    opened.push(...some);
  }
  return opened;
}

/** Sends this on a connection of its own and goes once something came back, or it was ended. */
async function exchange(target: Target, parts: (string | Buffer)[], atMostMs = 10_000): Promise<void> {
  const [socket] = await openMany(target, 1);
  if (socket === undefined) return;
  for (const part of parts) socket.write(part);
  const over = AbortSignal.timeout(atMostMs);
  await Promise.race([
    once(socket, 'data', { signal: over }).catch(() => {}),
    once(socket, 'close', { signal: over }).catch(() => {}),
  ]);
  socket.destroy();
}

/** As fast as it is read, and whatever is answered meanwhile. */
async function sendLarge(
  target: Target,
  { path, bytes, framing }: { path: string; bytes: number; framing: 'length' | 'chunks' },
): Promise<void> {
  const [socket] = await openMany(target, 1);
  if (socket === undefined) return;
  const part = Buffer.alloc(64 * 1024, 'x');
  const line = framing === 'length' ? `Content-Length: ${bytes + 2}\r\n` : 'Transfer-Encoding: chunked\r\n';
  socket.write(headOf(target, path, line));
  const write = (body: Buffer | string) =>
    framing === 'length'
      ? socket.write(body)
      : socket.write(
          Buffer.concat([
            Buffer.from(`${body.length.toString(16)}\r\n`),
            Buffer.from(body),
            Buffer.from('\r\n'),
          ]),
        );
  write('"');
  for (let sent = 0; sent < bytes && socket.writable; sent += part.length) {
    if (write(part)) continue;
    if (!(await flows(socket))) break;
  }
  socket.destroy();
}

/** Whether more may be written, waited for as long as a caller has patience. */
function flows(socket: Socket): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const flow = () => end(true);
  const stop = () => end(false);
  const timer = setTimeout(stop, 3_000);
  function end(isFlowing: boolean): void {
    clearTimeout(timer);
    socket.off('drain', flow).off('close', stop);
    resolve(isFlowing);
  }
  socket.on('drain', flow).on('close', stop);
  if (socket.destroyed) stop();
  return promise;
}
