/** An error of each code that the modules of a realm throw: Node makes a class for each code, and exports none of them. */
import crypto from 'node:crypto';
import events from 'node:events';
import stream from 'node:stream';
import url from 'node:url';
import util from 'node:util';

const one = () => new stream.PassThrough();
const hashed = () => {
  const hash = crypto.createHash('sha256');
  hash.digest();
  return hash;
};
const cipher = () => crypto.createCipheriv('aes-256-gcm', Buffer.alloc(32), Buffer.alloc(12));
// What is given is wrong on purpose.
const wrong = (value: unknown) => value as never;

/** Each throws, or returns a stream that broke. */
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

export function hiddenErrors(): unknown[] {
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
