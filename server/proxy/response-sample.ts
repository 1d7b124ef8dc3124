import type { ObservedAnswer } from '../connections/observe.ts';
import { codingOf } from './codings.ts';
import type { Head } from './relay.ts';

const maxSampledBytes = 16 * 1024;
/** Errors do not shrink further than that when they are encoded. */
const maxDecodedBytes = 64 * maxSampledBytes;

/** The part of a response that is reported. */
export type Sampled = Omit<ObservedAnswer, 'url'>;

/** A response and the first 16 KB of its body; below status 400 only its head. */
export class ResponseSample {
  readonly #head: Head;
  readonly #parts: Buffer[] = [];
  #leftBytes: number;

  constructor(head: Head) {
    this.#head = head;
    this.#leftBytes = head.status < 400 ? 0 : maxSampledBytes;
  }

  /** Whether no more bytes are kept. */
  get isFull(): boolean {
    return this.#leftBytes === 0;
  }

  add(part: Buffer): void {
    if (this.#leftBytes === 0) return;
    // A copy: the part itself belongs to a larger buffer, which must not be kept for it.
    const kept = Buffer.from(part.subarray(0, this.#leftBytes));
    this.#leftBytes -= kept.length;
    this.#parts.push(kept);
  }

  answer(): Sampled {
    const { status, rawHeaders } = this.#head;
    const headers: Record<string, string> = {};
    for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
      headers[(rawHeaders[at] as string).toLowerCase()] ??= rawHeaders[at + 1] as string;
    }
    return { status, headers, body: this.#decoded() };
  }

  /** Errors are small, so their encoded form mostly is whole; what cannot be decoded stays as it is. */
  #decoded(): Buffer {
    const bytes = Buffer.concat(this.#parts);
    const coding = bytes.length === 0 ? undefined : codingOf(this.#head.rawHeaders);
    try {
      const text = coding?.decode(bytes, { maxOutputLength: maxDecodedBytes }) ?? bytes;
      return text.subarray(0, maxSampledBytes);
    } catch {
      return bytes;
    }
  }
}

/**
 * Reports a response to `onSample`, once: when the sample is full, when the response ends, or when its call is over. A
 * slow reader therefore does not delay the report of a refusal.
 */
export class ResponseWatch {
  readonly #sample: ResponseSample;
  #onSample: ((answer: Sampled) => void) | undefined;

  constructor(head: Head, onSample: (answer: Sampled) => void) {
    this.#sample = new ResponseSample(head);
    this.#onSample = onSample;
  }

  add(part: Buffer): void {
    this.#sample.add(part);
    if (this.#sample.isFull) this.end();
  }

  /** Reports what there is. Later calls have no effect. */
  end(): void {
    const onSample = this.#onSample;
    this.#onSample = undefined;
    onSample?.(this.#sample.answer());
  }
}
