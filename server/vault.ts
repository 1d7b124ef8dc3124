/**
 * Keys, and what they seal.
 *
 * The master key ring wraps data keys; a data key (one a connection, one an environment) seals everything else.
 * Rotating the ring rewraps data keys only; destroying a data key destroys what it sealed. AES-256-GCM throughout
 * (NIST SP 800-38D) with random 96-bit nonces. Does not own: where wrapped keys are kept (`data-keys/`).
 */
import {
  type Cipheriv,
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  type Decipheriv,
  hkdfSync,
  type KeyObject,
  randomBytes,
} from 'node:crypto';
import type { MasterKey } from './config/config.ts';
import { freeIfLarge, reserve } from './large-buffer.ts';

const nonceBytes = 12;
const tagBytes = 16;
const version = 1;

/** A larger text passes the cipher in parts, so that it is held only twice. */
const partBytes = 256 * 1024;

/** Bytes that a seal adds to its plain text. */
const sealOverheadBytes = 1 + nonceBytes + tagBytes;

export class DataKey {
  readonly #sealing: KeyObject;
  readonly #root: Buffer;

  /** `root` is 32 random bytes. */
  constructor(root: Buffer) {
    this.#root = root;
    this.#sealing = this.subkey('seal');
  }

  /** A key for one further purpose (HKDF-SHA-256, RFC 5869); equal purposes give equal keys. */
  subkey(purpose: string): KeyObject {
    return createSecretKey(Buffer.from(hkdfSync('sha256', this.#root, '', `trellis ${purpose}`, 32)));
  }

  /**
   * `context` names what is sealed; it must be the same when it is opened. It need not name the row: who may write into
   * the database may make keys of the API there too, so a value that is moved gives nobody more than that.
   */
  seal(plain: Buffer | string, context: string): Buffer {
    return sealWith(this.#sealing, plain, { context, nonce: randomBytes(nonceBytes) });
  }

  /** As `seal`, for many at once: the nonces are drawn together. */
  sealMany(plains: readonly { plain: Buffer | string; context: string }[]): Buffer[] {
    const nonces = randomBytes(nonceBytes * plains.length);
    return plains.map(({ plain, context }, index) =>
      sealWith(this.#sealing, plain, {
        context,
        nonce: nonces.subarray(index * nonceBytes, (index + 1) * nonceBytes),
      }),
    );
  }

  /** Throws where the bytes are not what this key sealed under `context`. */
  open(sealed: Buffer, context: string): Buffer {
    return openWith(this.#sealing, sealed, context);
  }

  sealJson(value: unknown, context: string): Buffer {
    return this.seal(JSON.stringify(value), context);
  }

  openJson(sealed: Buffer, context: string): unknown {
    return JSON.parse(this.open(sealed, context).toString('utf8'));
  }

  /** The root, for wrapping, and for a thread of this process, which a DataKey cannot be posted to. */
  static rootOf(key: DataKey): Buffer {
    return key.#root;
  }
}

export type Vault = {
  /** A new data key, and the form of it to store, wrapped by the first master key unless another is given. */
  createDataKey(master?: MasterKey): { key: DataKey; wrapped: Buffer };
  /** Throws where the master key that wrapped it is not in the ring, naming its id. */
  unwrap(wrapped: Buffer): DataKey;
  /** The same data key, wrapped by the first master key. Throws as `unwrap` does. */
  rewrap(wrapped: Buffer): Buffer;
  readonly masterKeys: readonly [MasterKey, ...MasterKey[]];
};

/** A vault on a key ring; the first key wraps. */
export function openVault(masterKeys: readonly MasterKey[]): Vault {
  const [sealing, ...others] = masterKeys;
  if (sealing === undefined) throw new RangeError('a vault needs a master key');
  const unwrap = (wrapped: Buffer): DataKey => {
    const { id, body } = partsOf(wrapped);
    const master = masterKeys.find((key) => key.id === id);
    if (master === undefined)
      throw new Error(`The master key "${id}" is missing from TRELLIS_ENCRYPTION_KEYS.`);
    return new DataKey(openWith(master.key, body, 'data key'));
  };
  return {
    masterKeys: [sealing, ...others],
    createDataKey(master = sealing) {
      const key = new DataKey(randomBytes(32));
      return { key, wrapped: wrap(key, master) };
    },
    unwrap,
    rewrap: (wrapped) => wrap(unwrap(wrapped), sealing),
  };
}

/** Tells whether two keys are the same without telling the key (HMAC-SHA-256 of a constant). */
export function proofOf(key: MasterKey): Buffer {
  return createHmac('sha256', key.key).update('trellis master key proof').digest();
}

function wrap(key: DataKey, master: MasterKey): Buffer {
  const id = Buffer.from(master.id);
  const body = sealWith(master.key, DataKey.rootOf(key), {
    context: 'data key',
    nonce: randomBytes(nonceBytes),
  });
  return Buffer.concat([Buffer.from([id.length]), id, body]);
}

function partsOf(wrapped: Buffer): { id: string; body: Buffer } {
  const end = 1 + (wrapped[0] ?? 0);
  return { id: wrapped.toString('utf8', 1, end), body: wrapped.subarray(end) };
}

function sealWith(key: KeyObject, plain: Buffer | string, by: { context: string; nonce: Buffer }): Buffer {
  const cipher = createCipheriv('aes-256-gcm', key, by.nonce);
  cipher.setAAD(Buffer.from(by.context));
  const bytes = typeof plain === 'string' ? Buffer.from(plain) : plain;
  if (bytes.length <= partBytes) {
    const body = cipher.update(bytes);
    cipher.final();
    return Buffer.concat([Buffer.from([version]), by.nonce, body, cipher.getAuthTag()]);
  }
  const sealed = reserve(sealOverheadBytes + bytes.length);
  sealed[0] = version;
  by.nonce.copy(sealed, 1);
  passParts(cipher, bytes, sealed.subarray(1 + nonceBytes));
  cipher.final();
  cipher.getAuthTag().copy(sealed, sealed.length - tagBytes);
  if (bytes !== plain) freeIfLarge(bytes);
  return sealed;
}

function openWith(key: KeyObject, sealed: Buffer, context: string): Buffer {
  if (sealed[0] !== version || sealed.length < sealOverheadBytes) throw new Error('Not a sealed value.');
  const decipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(1, 1 + nonceBytes), {
    authTagLength: tagBytes,
  });
  decipher.setAAD(Buffer.from(context));
  decipher.setAuthTag(sealed.subarray(sealed.length - tagBytes));
  const secret = sealed.subarray(1 + nonceBytes, sealed.length - tagBytes);
  const isLarge = secret.length > partBytes;
  const body = isLarge ? passParts(decipher, secret, reserve(secret.length)) : decipher.update(secret);
  // Throws if the tag is wrong. In this mode it returns no bytes: the text is complete without a copy.
  decipher.final();
  return body;
}

/** In this mode a part has the same length before and after the cipher. Each part is freed immediately. */
function passParts(cipher: Cipheriv | Decipheriv, from: Buffer, to: Buffer): Buffer {
  for (let at = 0; at < from.length; at += partBytes) {
    const part = cipher.update(from.subarray(at, at + partBytes));
    part.copy(to, at);
    freeIfLarge(part);
  }
  return to;
}
