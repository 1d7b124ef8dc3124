/**
 * Frames over the pipe between the service and a process of customer code, the same on both sides: a short message with
 * a payload, and bytes of numbered streams. A frame is the length of what follows (four bytes, big-endian), its kind, a
 * number (four bytes), and its content. The number of a message is the length of its JSON text, which the payload
 * follows; that of bytes is their stream.
 *
 * Only the short text is decoded here. The other end can send garbage, but the cost of each frame is bounded.
 */
import type { Socket } from 'node:net';
import { freeBytes, reserve } from '../../large-buffer.ts';
import type { TimeSlice } from './time-slice.ts';

/** Of one payload. A longer frame is refused before it is read. */
export const maxPayloadBytes = 16 * 1024 * 1024;
/** Of the text of one message: the longest is the report of an error. */
const maxTextBytes = 256 * 1024;
const maxFrameBytes = maxPayloadBytes + maxTextBytes;

/** Exit codes of a process that ends itself: why it does. */
export const floodedExitCode = 71;
export const channelBrokenExitCode = 72;

/** The maximum number of open calls of one run. The process of the code holds further calls back. */
export const maxOpenCalls = 32;

/** The maximum size of the arguments of all open calls, unless only one call is open. The process holds further calls back. */
export const maxOpenBytes = 4 * 1024 * 1024;

/** Of a frame whose memory is freed as soon as it is not needed, not at garbage collection. */
const largeFrameBytes = 256 * 1024;

/** Smaller parts are left to the garbage collector: to free one costs more than it gains. */
const smallPartBytes = 4 * 1024;

const messageKind = 0;
const bytesKind = 1;
const lengthBytes = 4;
const headBytes = lengthBytes + 1 + 4;

type Head = { length: number; kind: number; number: number };
type Partial = Head & { text: Buffer; payload: Buffer<ArrayBuffer>; filled: number };

export type Receiver = {
  /** The payload is empty where the message has none. It is all of its buffer. */
  message(text: string, payload: Buffer<ArrayBuffer>): void;
  bytes(stream: number, bytes: Uint8Array): void;
  /** The other side broke the rules of framing. Nothing is read afterwards. */
  broken(reason: string): void;
};

export class Channel {
  readonly #socket: Socket;
  readonly #receiver: Receiver;
  readonly #slice: TimeSlice | undefined;
  /** Fewer bytes than a head, or the frames that the time slice did not allow. */
  #rest: Buffer = Buffer.alloc(0);
  /** A frame that arrived in part. */
  #partial: Partial | undefined;
  #isBroken = false;

  /** With a slice: frames are delivered for as long as it lasts, and the rest in a later turn of the event loop. */
  constructor(socket: Socket, receiver: Receiver, slice?: TimeSlice) {
    this.#socket = socket;
    this.#receiver = receiver;
    this.#slice = slice;
    socket.on('data', (part: Buffer<ArrayBuffer>) => {
      this.#take(part);
      // Node allocates each part apart. Parts of large frames arrive faster than garbage is collected.
      const isWhole = part.length > smallPartBytes && part.length === part.buffer.byteLength;
      if (isWhole && this.#rest.buffer !== part.buffer) freeBytes(part);
    });
    // A process that is gone shows in its exit; a write that it no longer reads is no news.
    socket.on('error', () => {});
  }

  /** Throws RangeError where the payload is longer than a frame allows. */
  send(text: string, payload: string | Uint8Array = ''): void {
    const textBytes = Buffer.byteLength(text);
    const payloadBytes = typeof payload === 'string' ? Buffer.byteLength(payload) : payload.byteLength;
    if (payloadBytes > maxPayloadBytes)
      throw new RangeError(`a message has ${payloadBytes} bytes, the most is ${maxPayloadBytes}`);
    const frame = frameOf({ kind: messageKind, number: textBytes, length: textBytes + payloadBytes });
    frame.write(text, headBytes);
    const start = headBytes + textBytes;
    if (typeof payload === 'string') frame.write(payload, start);
    else frame.set(payload, start);
    // Frees the memory as soon as the system has the bytes.
    if (frame.length > largeFrameBytes) this.#socket.write(frame, () => freeBytes(frame));
    else this.#socket.write(frame);
  }

  sendBytes(stream: number, bytes: Uint8Array): void {
    // In one write: code that calls with its stack nearly full must not send a head without its bytes.
    const frame = frameOf({ kind: bytesKind, number: stream, length: bytes.byteLength });
    frame.set(bytes, headBytes);
    this.#socket.write(frame);
  }

  #take(part: Buffer): void {
    if (this.#isBroken) return;
    const rest = this.#partial === undefined ? part : this.#fill(this.#partial, part);
    if (rest.length === 0) return;
    this.#rest = this.#rest.length === 0 ? rest : Buffer.concat([this.#rest, rest]);
    this.#deliverRest();
  }

  /** Answers the bytes behind the frame. */
  #fill(partial: Partial, part: Buffer): Buffer {
    const { text, payload, length } = partial;
    let taken = 0;
    if (partial.filled < text.length) taken = part.copy(text, partial.filled);
    const filled = partial.filled + taken - text.length;
    if (filled >= 0) taken += part.copy(payload, filled, taken);
    partial.filled += taken;
    if (partial.filled === length) {
      this.#partial = undefined;
      this.#deliver(partial);
    }
    return part.subarray(taken);
  }

  #deliverRest(): void {
    while (!this.#isBroken && this.#rest.length >= headBytes) {
      if (this.#slice?.isSpent()) {
        this.#goOnLater(this.#slice);
        return;
      }
      const head = readHead(this.#rest);
      const fault = faultOf(head);
      if (fault !== undefined) {
        this.#break(fault);
        return;
      }
      const content = this.#rest.subarray(headBytes);
      const text = Buffer.allocUnsafe(head.kind === messageKind ? head.number : 0);
      // The system gives no memory for what is announced until it arrives.
      const payload = reserve(head.length - text.length);
      this.#rest = Buffer.alloc(0);
      this.#partial = { ...head, text, payload, filled: 0 };
      this.#rest = this.#fill(this.#partial, content);
    }
    // The first bytes already say that a frame is too long; and a few must not keep the memory of all that came with them.
    if (this.#isBroken || this.#rest.length === 0) return;
    if (this.#rest.length >= lengthBytes && this.#rest.readUInt32BE() > maxFrameBytes)
      this.#break(`a frame says that it has ${this.#rest.readUInt32BE()} bytes`);
    this.#rest = Buffer.from(this.#rest);
  }

  #goOnLater(slice: TimeSlice): void {
    this.#socket.pause();
    slice.next(() => {
      this.#socket.resume();
      this.#deliverRest();
    });
  }

  #deliver({ kind, number, text, payload }: Partial): void {
    if (kind === messageKind) this.#receiver.message(text.toString('utf8'), payload);
    else this.#receiver.bytes(number, payload);
  }

  #break(reason: string): void {
    this.#isBroken = true;
    this.#rest = Buffer.alloc(0);
    this.#partial = undefined;
    this.#socket.pause();
    this.#receiver.broken(reason);
  }
}

function frameOf({ kind, number, length }: Head): Buffer<ArrayBuffer> {
  const size = headBytes + length;
  const frame = size > largeFrameBytes ? reserve(size) : (Buffer.allocUnsafe(size) as Buffer<ArrayBuffer>);
  frame.writeUInt32BE(headBytes - lengthBytes + length);
  frame[lengthBytes] = kind;
  frame.writeUInt32BE(number, lengthBytes + 1);
  return frame;
}

/** `length` is that of the content. */
function readHead(bytes: Buffer): Head {
  const length = bytes.readUInt32BE() - (headBytes - lengthBytes);
  return { length, kind: bytes[lengthBytes]!, number: bytes.readUInt32BE(lengthBytes + 1) };
}

function faultOf({ length, kind, number }: Head): string | undefined {
  if (length < 0 || length > maxFrameBytes) return `a frame says that its content has ${length} bytes`;
  if (kind !== messageKind && kind !== bytesKind) return 'a frame is of no known kind';
  if (kind === messageKind && number > Math.min(length, maxTextBytes))
    return `a message says that its text has ${number} bytes`;
  return undefined;
}
