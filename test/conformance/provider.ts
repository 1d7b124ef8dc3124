/** A provider that does what each case tells it, on bare sockets, so that every byte of both directions is known. */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';

/** One request as it arrived. */
export class Seen {
  readonly line: string;
  /** Names and values, as they were spelled. */
  readonly headers: readonly (readonly [string, string])[];
  readonly socket: Socket;
  /** Resolves with the whole body; rejects when the connection ends before it. */
  readonly body: Promise<Buffer>;
  /** Resolves when the first bytes of the body are here. */
  readonly firstPart: Promise<Buffer>;
  /** Resolves when the connection is closed from the other side. */
  readonly gone: Promise<void>;

  constructor(head: string, socket: Socket, coming: Coming) {
    const [line = '', ...lines] = head.split('\r\n');
    this.line = line;
    this.headers = lines.map((text) => {
      const at = text.indexOf(':');
      return [text.slice(0, at), text.slice(at + 1).trim()] as const;
    });
    this.socket = socket;
    this.body = coming.whole;
    this.firstPart = coming.first;
    this.gone = coming.gone;
    for (const promise of [this.body, this.firstPart, this.gone]) promise.catch(() => {});
  }

  get path(): string {
    return this.line.split(' ')[1] ?? '';
  }

  /** All values of a header, in order. */
  all(name: string): string[] {
    return this.headers
      .filter(([given]) => given.toLowerCase() === name.toLowerCase())
      .map(([, value]) => value);
  }

  write(bytes: string | Buffer): void {
    this.socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes);
  }
}

type Coming = { whole: Promise<Buffer>; first: Promise<Buffer>; gone: Promise<void> };
export type Script = (seen: Seen) => unknown;

export const ok = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

/** An answer with a length. */
export function answer(status: string, headers: readonly string[] = [], body: string | Buffer = ''): Buffer {
  const bytes = typeof body === 'string' ? Buffer.from(body, 'latin1') : body;
  const head = [`HTTP/1.1 ${status}`, ...headers, `Content-Length: ${bytes.length}`, '', ''].join('\r\n');
  return Buffer.concat([Buffer.from(head, 'latin1'), bytes]);
}

export type Provider = {
  readonly port: number;
  /** What came since `play` was last called. */
  readonly seen: readonly Seen[];
  /** Answers from now on this way. */
  play(script: Script): void;
  /** Resolves with the next request, or one that came since `play` was last called. */
  next(): Promise<Seen>;
  close(): Promise<void>;
};

export async function startProvider(port = 0): Promise<Provider> {
  let script: Script = (seen) => seen.write(ok);
  let seen: Seen[] = [];
  let tell = Promise.withResolvers<void>();
  let taken = 0;
  const open = new Set<Socket>();
  const server = createServer((socket) => {
    open.add(socket);
    socket.on('error', () => {}).on('close', () => open.delete(socket));
    readRequests(socket, (request) => {
      seen.push(request);
      tell.resolve();
      tell = Promise.withResolvers<void>();
      script(request);
    });
  });
  await once(server.listen(port, '127.0.0.1'), 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    get seen() {
      return seen;
    },
    play(given) {
      script = given;
      seen = [];
      taken = 0;
    },
    async next() {
      while (seen.length <= taken) await tell.promise;
      taken += 1;
      return seen[taken - 1] as Seen;
    },
    async close() {
      for (const socket of open) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

/** Takes a connection apart into requests, by length or chunks (RFC 9112 §6). */
function readRequests(socket: Socket, tell: (seen: Seen) => void): void {
  let buffer: Buffer = Buffer.alloc(0);
  let reader: ((buffer: Buffer) => Buffer | undefined) | undefined;
  let fail: (error: Error) => void = () => {};
  const gone = once(socket, 'close').then(() => {});
  socket.on('close', () => fail(new Error('the connection ended before the body')));
  socket.on('data', (chunk: Buffer) => {
    buffer = Buffer.concat([buffer, chunk]);
    for (;;) {
      if (reader !== undefined) {
        const rest = reader(buffer);
        buffer = rest ?? Buffer.alloc(0);
        if (rest === undefined) return;
        reader = undefined;
      }
      const end = buffer.indexOf('\r\n\r\n');
      if (end === -1) return;
      const head = buffer.toString('latin1', 0, end);
      buffer = buffer.subarray(end + 4);
      const whole = Promise.withResolvers<Buffer>();
      const first = Promise.withResolvers<Buffer>();
      fail = (error) => {
        whole.reject(error);
        first.reject(error);
      };
      reader = bodyReader(head, { onPart: first.resolve, onEnd: whole.resolve });
      tell(new Seen(head, socket, { whole: whole.promise, first: first.promise, gone }));
    }
  });
}

/** Takes the bytes of one body; answers what is left behind its end, undefined while more is to come. */
function bodyReader(
  head: string,
  { onPart, onEnd }: { onPart: (part: Buffer) => void; onEnd: (body: Buffer) => void },
): (buffer: Buffer) => Buffer | undefined {
  const parts: Buffer[] = [];
  const take = (part: Buffer) => {
    if (part.length === 0) return;
    parts.push(Buffer.from(part));
    onPart(part);
  };
  if (/^transfer-encoding: *chunked$/im.test(head)) {
    let pending: Buffer = Buffer.alloc(0);
    return (buffer) => {
      pending = Buffer.concat([pending, buffer]);
      for (;;) {
        const line = pending.indexOf('\r\n');
        if (line === -1) return undefined;
        const size = Number.parseInt(pending.toString('latin1', 0, line), 16);
        if (pending.length < line + 2 + size + 2) return undefined;
        take(pending.subarray(line + 2, line + 2 + size));
        pending = pending.subarray(line + 2 + size + 2);
        if (size === 0) {
          onEnd(Buffer.concat(parts));
          return pending;
        }
      }
    };
  }
  let left = Number(/^content-length: *(\d+)$/im.exec(head)?.[1] ?? 0);
  return (buffer) => {
    const part = buffer.subarray(0, left);
    left -= part.length;
    take(part);
    if (left > 0) return undefined;
    onEnd(Buffer.concat(parts));
    return buffer.subarray(part.length);
  };
}
