/**
 * Frames over the pipe between the service and a process of customer code, the same on both sides: JSON text, and bytes
 * of numbered streams. A frame is its length (four bytes, big end first), its kind, and what it carries.
 *
 * Nothing is deserialized here but UTF-8, so whoever sits at the other end can send garbage and no more.
 */
import type { Socket } from 'node:net';

/** Of one frame. What is longer is refused before it is read. */
export const maxFrameBytes = 16 * 1024 * 1024;

/** How many asks of one run may be open. The code's side keeps back what is more. */
export const maxOpenAsks = 32;

/**
 * Characters of all that are open, unless there is but one: as objects in the service's memory they take many times as much.
 */
export const maxOpenText = maxFrameBytes;

const textKind = 0;
const bytesKind = 1;
const headBytes = 5;

export type Receiver = {
  text(text: string): void;
  bytes(stream: number, bytes: Uint8Array): void;
  /** The other side broke the rules of framing. Nothing is read afterwards. */
  broken(reason: string): void;
};

export class Channel {
  readonly #socket: Socket;
  readonly #receiver: Receiver;
  #parts: Buffer[] = [];
  #heldBytes = 0;
  #isBroken = false;

  constructor(socket: Socket, receiver: Receiver) {
    this.#socket = socket;
    this.#receiver = receiver;
    socket.on('data', (part: Buffer) => this.#take(part));
    // A process that is gone shows in its exit; a write that it no longer reads is no news.
    socket.on('error', () => {});
  }

  /** Throws RangeError where the text is longer than a frame. */
  send(text: string): void {
    const size = Buffer.byteLength(text);
    if (size + 1 > maxFrameBytes)
      throw new RangeError(`a message has ${size} bytes, the most is ${maxFrameBytes}`);
    const frame = Buffer.allocUnsafe(headBytes + size);
    frame.writeUInt32BE(size + 1);
    frame[4] = textKind;
    frame.write(text, headBytes);
    this.#socket.write(frame);
  }

  sendBytes(stream: number, bytes: Uint8Array): void {
    // In one write: code that calls with its stack nearly full must not send a head without its bytes.
    const frame = Buffer.allocUnsafe(headBytes + 4 + bytes.byteLength);
    frame.writeUInt32BE(bytes.byteLength + 5);
    frame[4] = bytesKind;
    frame.writeUInt32BE(stream, headBytes);
    frame.set(bytes, headBytes + 4);
    this.#socket.write(frame);
  }

  #take(part: Buffer) {
    this.#parts.push(part);
    this.#heldBytes += part.length;
    while (!this.#isBroken && this.#heldBytes >= headBytes) {
      const length = this.#peekLength();
      if (length < 1 || length > maxFrameBytes)
        return this.#break(`a frame says that it has ${length} bytes`);
      if (this.#heldBytes < 4 + length) return;
      const whole = this.#parts.length === 1 ? this.#parts[0]! : Buffer.concat(this.#parts);
      this.#hold(whole.subarray(4 + length));
      this.#deliver(whole.subarray(4, 4 + length));
    }
  }

  #peekLength(): number {
    if (this.#parts[0]!.length < 4) this.#parts = [Buffer.concat(this.#parts)];
    return this.#parts[0]!.readUInt32BE();
  }

  #hold(rest: Buffer): void {
    this.#parts = rest.length === 0 ? [] : [rest];
    this.#heldBytes = rest.length;
  }

  #deliver(frame: Buffer) {
    if (frame[0] === textKind) return this.#receiver.text(frame.toString('utf8', 1));
    if (frame[0] !== bytesKind || frame.length < 5) return this.#break('a frame is of no known kind');
    this.#receiver.bytes(frame.readUInt32BE(1), frame.subarray(5));
  }

  #break(reason: string): void {
    this.#isBroken = true;
    this.#parts = [];
    this.#socket.pause();
    this.#receiver.broken(reason);
  }
}
