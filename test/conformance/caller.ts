/** A caller on a bare socket: it sends what no client library would, and sees every byte that comes back. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

export type Ask = {
  method?: string;
  /** Path and query of the provider. */
  path?: string;
  headers?: readonly string[];
  body?: string | Buffer;
  version?: '1.0' | '1.1';
  /** Header names of the subject to leave out. */
  without?: readonly string[];
  /** Leaves the connection open behind the answer. */
  keepAlive?: boolean;
};

export type Reply = {
  /** Heads of interim answers (1xx), whole. */
  interim: string[];
  line: string;
  status: number;
  headers: [string, string][];
  body: Buffer;
  trailers: [string, string][];
  /** Whether the message ended where it said it would. */
  isWhole: boolean;
};

/** Where the proxy is, and the headers that every call needs. */
export type Address = {
  host: string;
  port: number;
  prefix: string;
  headers: readonly (readonly [string, string])[];
};

/** One call; what comes back is there as it arrives. */
export class Conversation {
  readonly socket: Socket;
  #bytes = Buffer.alloc(0);
  #isClosed = false;

  constructor(address: Address, ask: Ask) {
    this.socket = connect(address.port, address.host);
    this.socket.on('error', () => {});
    this.socket.on('data', (chunk: Buffer) => {
      this.#bytes = Buffer.concat([this.#bytes, chunk]);
    });
    this.socket.on('close', () => {
      this.#isClosed = true;
    });
    this.send(address, ask);
  }

  send(address: Address, ask: Ask): void {
    this.socket.write(Buffer.concat([Buffer.from(headOf(address, ask), 'latin1'), bytesOf(ask.body)]));
  }

  get bytes(): Buffer {
    return this.#bytes;
  }

  /** Resolves once this much has come. */
  async until(isEnough: (bytes: Buffer) => boolean): Promise<Buffer> {
    while (!isEnough(this.#bytes)) {
      if (this.#isClosed)
        throw new Error(`the connection ended after ${JSON.stringify(this.#bytes.toString('latin1'))}`);
      await Promise.race([once(this.socket, 'data'), once(this.socket, 'close')]);
    }
    return this.#bytes;
  }

  /** The bytes that came until the connection ended, by a reset too. */
  async closed(): Promise<Buffer> {
    if (!this.#isClosed) await new Promise((resolve) => this.socket.once('close', resolve));
    return this.#bytes;
  }

  /** The answer that came until the connection ended. */
  async ended(): Promise<Reply> {
    return readReply(await this.closed());
  }
}

/** One call on a connection of its own, to its end. */
export function call(address: Address, ask: Ask = {}): Promise<Reply> {
  return new Conversation(address, ask).ended();
}

function headOf(address: Address, ask: Ask): string {
  const {
    method = 'GET',
    path = '/x',
    version = '1.1',
    without = [],
    headers = [],
    body,
    keepAlive = false,
  } = ask;
  const own = address.headers
    .filter(([name]) => !without.includes(name))
    .map(([name, value]) => `${name}: ${value}`);
  const hasFraming = headers.some((line) => /^(content-length|transfer-encoding):/i.test(line));
  const length = body === undefined || hasFraming ? [] : [`Content-Length: ${bytesOf(body).length}`];
  const lines = [
    'Host: proxy.example',
    ...(keepAlive ? [] : ['Connection: close']),
    ...own,
    ...length,
    ...headers,
  ];
  return `${method} ${address.prefix}${path} HTTP/${version}\r\n${lines.join('\r\n')}\r\n\r\n`;
}

/** All values of a header of an answer. */
export function all(reply: Reply, name: string): string[] {
  return reply.headers
    .filter(([given]) => given.toLowerCase() === name.toLowerCase())
    .map(([, value]) => value);
}

function bytesOf(body: string | Buffer | undefined): Buffer {
  return body === undefined ? Buffer.alloc(0) : Buffer.isBuffer(body) ? body : Buffer.from(body, 'latin1');
}

/** Reads an answer and what it says of its own end (RFC 9112 §6.3). */
export function readReply(bytes: Buffer): Reply {
  const interim: string[] = [];
  let rest = bytes;
  for (;;) {
    const end = rest.indexOf('\r\n\r\n');
    if (end === -1)
      throw new Error(`no answer, but ${JSON.stringify(rest.toString('latin1').slice(0, 200))}`);
    const head = rest.toString('latin1', 0, end);
    rest = rest.subarray(end + 4);
    const status = Number(head.slice(9, 12));
    if (status >= 200) return { interim, status, ...readMessage(head, rest) };
    interim.push(head);
  }
}

function readMessage(head: string, rest: Buffer): Omit<Reply, 'interim' | 'status'> {
  const [line = '', ...lines] = head.split('\r\n');
  const headers = lines.map(pairOf);
  const headerOf = (name: string) => headers.find(([given]) => given.toLowerCase() === name)?.[1];
  if (headerOf('transfer-encoding') === 'chunked') return { line, headers, ...readChunks(rest) };
  const length = headerOf('content-length');
  const isWhole = length === undefined || rest.length === Number(length);
  return { line, headers, body: rest, trailers: [], isWhole };
}

function readChunks(rest: Buffer): Pick<Reply, 'body' | 'trailers' | 'isWhole'> {
  const parts: Buffer[] = [];
  let at = 0;
  for (;;) {
    const line = rest.indexOf('\r\n', at);
    const size = line === -1 ? Number.NaN : Number.parseInt(rest.toString('latin1', at, line), 16);
    if (Number.isNaN(size)) return { body: Buffer.concat(parts), trailers: [], isWhole: false };
    if (size === 0) {
      const lines = rest
        .toString('latin1', line + 2)
        .split('\r\n')
        .filter((text) => text !== '');
      return { body: Buffer.concat(parts), trailers: lines.map(pairOf), isWhole: true };
    }
    parts.push(rest.subarray(line + 2, line + 2 + size));
    at = line + 2 + size + 2;
  }
}

function pairOf(text: string): [string, string] {
  const at = text.indexOf(':');
  return [text.slice(0, at), text.slice(at + 1).trim()];
}
