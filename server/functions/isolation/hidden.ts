/**
 * One instance of each class that Node's modules use without an export, such as a hash's native handle. All runs share the
 * prototypes of these classes too, and only an instance leads to them.
 *
 * `test/functions/hostile/left-behind.test.ts` looks for kinds that are missing here.
 */
import crypto from 'node:crypto';
import events from 'node:events';
import stream from 'node:stream';
import url from 'node:url';
import util from 'node:util';

/** Unused instances: everything that is reachable from them may be frozen. */
export function hiddenInstances(): unknown[] {
  return [...ofCrypto(), ...ofStreams(), ...ofEvents(), ...ofOthers(), ...ofEcmaScript(), ...hiddenErrors()];
}

function ofCrypto(): unknown[] {
  const { privateKey, publicKey } = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const secret = crypto.createSecretKey(Buffer.alloc(32));
  const [key, iv] = [Buffer.alloc(32), Buffer.alloc(12)];
  return [
    privateKey,
    publicKey,
    secret,
    secret.toCryptoKey('AES-GCM', true, ['encrypt']),
    crypto.createHash('sha256'),
    crypto.createHmac('sha256', key),
    crypto.createSign('sha256'),
    crypto.createVerify('sha256'),
    crypto.createECDH('prime256v1'),
    crypto.getDiffieHellman('modp5'),
    // A small prime, which is checked quickly.
    crypto.createDiffieHellman(Buffer.from([23])),
    crypto.webcrypto,
    new crypto.Certificate(),
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
    reading,
    written,
    one().iterator(),
    one()[Symbol.asyncIterator](),
    through,
    stream.duplexPair(),
    one().map(identity),
    one().filter(Boolean),
    one().flatMap(identity),
    one().take(1),
    one().drop(1),
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
    target,
    signal,
    emitter,
    iterator,
    events.addAbortListener(signal, () => {}),
    new Event('a'),
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
    query.entries(),
    query.keys(),
    query.values(),
    mime,
    mime.entries(),
    mime.keys(),
    mime.values(),
    blob,
    ...handles,
    new URL('http://a'),
    new TextDecoder(),
    new TextEncoder(),
    util.getCallSites(),
    util.parseArgs({ args: [] }),
    util.debuglog('a'),
    util.deprecate(() => {}, 'a'),
    util.promisify(() => {}),
    util.callbackify(async () => {}),
    util.inherits,
  ];
}

/** Objects of Node's realm that builtin methods create and no global names. */
function ofEcmaScript(): unknown[] {
  const list = [1].values();
  const plain = { next: () => ({ done: true, value: undefined }) };
  return [list.map(Number), Iterator.from(plain as never), Reflect.get(globalThis, 'Temporal')];
}

/** An error of each code that the modules of a realm throw: Node has a class for each code, and exports none of them. */

const one = () => new stream.PassThrough();
const hashed = () => {
  const hash = crypto.createHash('sha256');
  hash.digest();
  return hash;
};
const cipher = () => crypto.createCipheriv('aes-256-gcm', Buffer.alloc(32), Buffer.alloc(12));
// The arguments are wrong on purpose.
const wrong = (value: unknown) => value as never;

/** Each throws, or returns a stream with an error. */
const faults: (() => unknown)[] = [
  () => Buffer.from(wrong(5)),
  () => Buffer.alloc(-1),
  () => Buffer.alloc(1).readInt8(5),
  () => Buffer.alloc(1).swap16(),
  () => Buffer.alloc(1).readInt16LE(0),
  () => Buffer.alloc(4).fill('zz', wrong('hex')),
  () => Buffer.alloc(1).toString(wrong('nothing')),
  () => atob('%'),
  () => new URL('nothing'),
  () => url.fileURLToPath('http://a'),
  () => url.fileURLToPath('file://a/%2f'),
  () => url.fileURLToPath('file:///%2f'),
  () => url.parse(wrong(1)),
  () => Reflect.apply(url.domainToASCII, url, []),
  () => new URLSearchParams(wrong([1])),
  () => URLSearchParams.prototype.get.call(wrong({}), 'a'),
  () => new TextDecoder('nothing'),
  () => new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array([255])),
  () => new AbortSignal(),
  () => Reflect.get(AbortSignal.prototype, 'onabort', 1),
  () => AbortSignal.abort().throwIfAborted(),
  () => Reflect.construct(Event, []),
  () => new EventTarget().dispatchEvent(wrong(1)),
  () => redispatched(),
  () => new events.EventEmitter().emit('error', 1),
  () => events.on(new events.EventEmitter(), 'a', { signal: AbortSignal.abort() }),
  () => util.parseArgs({ args: ['--a'] }),
  () => util.parseArgs({ args: ['a'] }),
  () => util.parseArgs({ args: ['--a'], options: { a: { type: 'string' } } }),
  () => util.styleText(wrong('nothing'), 'a'),
  () => new util.MIMEType('nothing'),
  () => util.getSystemErrorName(5),
  () => one().write(null),
  () => one().setEncoding(wrong('nothing')),
  () => Reflect.apply(Reflect.get(one(), Symbol.for('Stream.toAsyncStreamable')), one(), []),
  () => new stream.Duplex()._read(0),
  () => new stream.Writable()._write('a', 'utf8', () => {}),
  () => stream.Duplex.from(wrong(() => 1)),
  () => Reflect.apply(stream.pipeline, stream, [one()]),
  () => broken(one(), (it) => it.end().write('a')),
  () => broken(one(), (it) => it.push(null) || it.push('a')),
  () => broken(one(), (it) => it.destroy().write('a')),
  () => broken(new stream.Writable({ write() {} }), (it) => it.pipe(one())),
  () => broken(one(), (it) => it.end().end('a')),
  () => broken(one(), (it) => it.destroy(new Error('a'))),
  () => hashed().digest(),
  () => broken(hashed(), (it) => it.write('a')),
  () => crypto.createHash('nothing'),
  () => crypto.createHmac('nothing', 'a'),
  () => crypto.createCipheriv('nothing', '', ''),
  () => crypto.createCipheriv('aes-256-gcm', 'a', Buffer.alloc(12)),
  () => cipher().getAuthTag(),
  () => cipher().final() && cipher().setAAD(wrong('a')),
  () => crypto.createSign('sha256').sign(wrong(undefined)),
  () => crypto.createECDH('nothing'),
  () => crypto.ECDH.convertKey('a', 'prime256v1', undefined, wrong('nothing')),
  () => crypto.ECDH.convertKey(Buffer.alloc(1), 'prime256v1', undefined, undefined, wrong('nothing')),
  () => crypto.createECDH('prime256v1').computeSecret('a'),
  () => crypto.createPublicKey(wrong(crypto.createSecretKey(Buffer.alloc(1)))),
  () => crypto.createPrivateKey('a'),
  () => crypto.createPrivateKey({ key: wrong({ kty: 'EC' }), format: 'jwk' }),
  () => crypto.createSecretKey(Buffer.alloc(1)).export({ format: wrong('nothing') }),
  () => crypto.createSecretKey(Buffer.alloc(1)).equals(wrong(1)),
  () => crypto.getDiffieHellman('nothing'),
  () => crypto.timingSafeEqual(Buffer.alloc(1), Buffer.alloc(2)),
  () => crypto.scryptSync('a', 'b', 1, { N: 3 }),
  () => crypto.scryptSync('a', 'b', 1, { N: 2 ** 30 }),
  () => crypto.pbkdf2Sync('a', 'b', 1, 1, 'nothing'),
  () => crypto.hkdfSync('sha256', 'a', 'b', 'c', 1e9),
  () => crypto.randomInt(5, 1),
  () => Reflect.apply(crypto.argon2Sync, crypto, ['nothing', {}]),
];

function hiddenErrors(): unknown[] {
  return faults.map((fault) => {
    try {
      return fault();
    } catch (error) {
      return error;
    }
  });
}

function broken<T extends stream.Writable>(it: T, act: (it: T) => unknown): T {
  it.on('error', () => {});
  act(it);
  return it;
}

function redispatched(): unknown {
  const target = new EventTarget();
  const event = new Event('a');
  let thrown: unknown;
  target.addEventListener('a', () => {
    try {
      target.dispatchEvent(event);
    } catch (error) {
      thrown = error;
    }
  });
  target.dispatchEvent(event);
  return thrown;
}
