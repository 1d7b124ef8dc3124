import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { TestContext } from 'node:test';

/** A client on a bare socket, which keeps its connection open as long as it is let. */
export class RawClient {
  readonly socket: Socket;
  readonly closed: Promise<unknown>;
  error: NodeJS.ErrnoException | undefined;
  /** All that came back. */
  text = '';

  constructor(t: TestContext, port: number) {
    this.socket = connect(port, '127.0.0.1');
    this.socket.on('data', (chunk: Buffer) => {
      this.text += chunk.toString('latin1');
    });
    this.socket.on('error', (error) => {
      this.error = error;
    });
    this.closed = new Promise((resolve) => this.socket.once('close', resolve));
    t.after(() => this.socket.destroy());
  }

  /** Each line end becomes that of HTTP. */
  send(text: string): this {
    this.socket.write(text.replaceAll('\n', '\r\n'), 'latin1');
    return this;
  }

  /** Resolves once this has come back; fails after 5 s. */
  async until(part: string): Promise<this> {
    while (!this.text.includes(part)) await once(this.socket, 'data', { signal: AbortSignal.timeout(5_000) });
    return this;
  }
}
