import { Readable } from 'node:stream';
import { setTimeout as wait } from 'node:timers/promises';

/** Why an event stream ends that its reader did not end. */
export type EndReason = 'asked' | 'stopping' | 'key' | 'too_slow' | 'failed';

const endings: Record<EndReason, string> = {
  asked: 'The time that was asked for is over.',
  stopping: 'The node stops. Connect again.',
  key: 'The key was revoked, has expired or lost its scope.',
  too_slow: 'Events were not read fast enough. Connect again, with Last-Event-ID to go on where this ended.',
  failed: 'The log cannot be read at the moment. Connect again a little later.',
};

/**
 * Server-sent events (HTML standard, §9.2) for one reader. The buffer holds at most the last sent text and some 16 KB:
 * `send` resolves once the buffer has capacity again.
 */
export class EventStream {
  readonly body: Readable;
  /** Aborted once it has ended, from whichever side. */
  readonly ended: AbortSignal;
  readonly #stallMs: number;
  readonly #lingerMs: number;
  readonly #ending = new AbortController();
  #drained: (() => void) | undefined;

  /** A reader who takes nothing for `stallMs` is told that it ends, and after `lingerMs` more is cut off. */
  constructor({ stallMs, lingerMs }: { stallMs: number; lingerMs: number }) {
    this.#stallMs = stallMs;
    this.#lingerMs = lingerMs;
    this.ended = this.#ending.signal;
    this.body = new Readable({
      read: () => this.#drained?.(),
      destroy: (error, done) => {
        this.#ending.abort();
        done(error);
      },
    });
  }

  /** Sends `text`, which is whole lines, and waits until it is on its way; at once where the stream has ended. */
  async send(text: string): Promise<void> {
    if (this.ended.aborted || this.body.push(text)) return;
    const { promise: drained, resolve } = Promise.withResolvers<void>();
    this.#drained = resolve;
    const over = new AbortController();
    const signal = AbortSignal.any([over.signal, this.ended]);
    const stalled = wait(this.#stallMs, 'stalled', { signal }).catch(() => 'ended');
    const outcome = await Promise.race([drained, stalled]);
    this.#drained = undefined;
    over.abort();
    if (outcome === 'stalled') this.end('too_slow');
  }

  /** The last event says why; a reader who does not take it is cut off a little later. */
  end(reason: EndReason): void {
    if (this.ended.aborted) return;
    this.#ending.abort();
    this.body.push(event('end', { data: { reason, message: endings[reason] } }));
    this.body.push(null);
    const cut = setTimeout(() => this.body.destroy(), this.#lingerMs);
    this.body.once('close', () => clearTimeout(cut));
  }
}

/** One event in the form of the stream; its data is JSON, in one line. */
export function event(name: string, { id, data }: { id?: string; data: unknown }): string {
  return `${id === undefined ? '' : `id: ${id}\n`}event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}
