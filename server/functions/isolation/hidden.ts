/**
 * One of each kind of object that Node's modules make of classes which they do not export, such as a hash's native handle.
 * What these inherit from is shared by all runs as much as an exported class, and can only be reached by an instance.
 *
 * `test/functions/hostile/left-behind.test.ts` looks for kinds that are missing here.
 */
import crypto from 'node:crypto';
import events from 'node:events';
import stream from 'node:stream';
import util from 'node:util';
import { hiddenErrors } from './hidden-errors.ts';

/** Handles that do nothing more: nobody else has them. Whatever hangs on them may be frozen. */
export function hiddenInstances(): unknown[] {
  return [...ofCrypto(), ...ofStreams(), ...ofEvents(), ...ofOthers(), ...ofEcmaScript(), ...hiddenErrors()];
}

function ofCrypto(): unknown[] {
  const { privateKey, publicKey } = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const secret = crypto.createSecretKey(Buffer.alloc(32));
  const [key, iv] = [Buffer.alloc(32), Buffer.alloc(12)];
  return [
    ...[privateKey, publicKey, secret, secret.toCryptoKey('AES-GCM', true, ['encrypt'])],
    ...[crypto.createHash('sha256'), crypto.createHmac('sha256', key), crypto.createSign('sha256')],
    ...[crypto.createVerify('sha256'), crypto.createECDH('prime256v1'), crypto.getDiffieHellman('modp5')],
    // A prime that is quickly seen to be one.
    ...[crypto.createDiffieHellman(Buffer.from([23])), crypto.webcrypto, new crypto.Certificate()],
    crypto.createCipheriv('aes-256-gcm', key, iv),
    crypto.createDecipheriv('aes-256-gcm', key, iv),
  ];
}

function ofStreams(): unknown[] {
  const one = () => new stream.PassThrough({ encoding: 'utf8' });
  const identity = (value: unknown) => value;
  const reading = one();
  reading.pipe(one());
  reading.write('a');
  const written = one();
  written.cork();
  written.write('a');
  const through = stream.compose(one(), one());
  return [
    ...[reading, written, one().iterator(), one()[Symbol.asyncIterator](), through, stream.duplexPair()],
    ...[one().map(identity), one().filter(Boolean), one().flatMap(identity), one().take(1), one().drop(1)],
    stream.Duplex.from(async function* (source: AsyncIterable<unknown>) {
      yield* source;
    }),
    stream.Duplex.from({ readable: one(), writable: one() } as never),
    stream.Readable.from(['a']),
  ];
}

function ofEvents(): unknown[] {
  const target = new EventTarget();
  const { signal } = new AbortController();
  for (const options of [{}, { once: true }, { capture: true }]) {
    target.addEventListener('a', () => {}, options);
    signal.addEventListener('abort', { handleEvent() {} }, options);
  }
  signal.onabort = () => {};
  const createEvent = symbolOf(EventTarget.prototype, 'kCreateEvent');
  const emitter = new events.EventEmitter();
  emitter.once('a', () => {});
  const iterator = events.on(emitter, 'a');
  return [
    ...[target, signal, emitter, iterator, events.addAbortListener(signal, () => {}), new Event('a')],
    Reflect.apply(Reflect.get(target, createEvent), target, [1, 'a']),
  ];
}

function symbolOf(target: object, description: string): symbol {
  return Object.getOwnPropertySymbols(target).find((symbol) => symbol.description === description)!;
}

function ofOthers(): unknown[] {
  const query = new URLSearchParams('a=b');
  const mime = new util.MIMEType('text/plain;a=b').params;
  const blob = new Blob(['a']);
  const handles = Reflect.ownKeys(blob).map((key) => Reflect.get(blob, key)?.getReader?.());
  return [
    ...[query.entries(), query.keys(), query.values(), mime, mime.entries(), mime.keys(), mime.values()],
    ...[blob, ...handles, new URL('http://a'), new TextDecoder(), new TextEncoder()],
    ...[util.getCallSites(), util.parseArgs({ args: [] }), util.debuglog('a'), util.deprecate(() => {}, 'a')],
    ...[util.promisify(() => {}), util.callbackify(async () => {}), util.inherits],
  ];
}

/** Of the realm of Node: what its builtin methods make, and no global names. */
function ofEcmaScript(): unknown[] {
  const list = [1].values();
  const plain = { next: () => ({ done: true, value: undefined }) };
  return [...[list.map(Number), Iterator.from(plain as never)], Reflect.get(globalThis, 'Temporal')];
}
