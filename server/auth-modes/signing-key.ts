/**
 * The keys of assertions: reads a private key or a secret as people paste it, and checks that it fits its algorithm
 * (RFC 7518 §3). Messages never contain a part of the key.
 */
import { createPrivateKey, createPublicKey, createSecretKey, hash, type KeyObject } from 'node:crypto';
import type { ProviderDefinition } from '../providers/definition.ts';

type Rules = Pick<NonNullable<ProviderDefinition['assertion']>, 'algorithm' | 'secret'>;
export type SigningKey = { readonly key: KeyObject; readonly keyId?: string };

/** RFC 7518 §3.3 and §3.5. */
const minRsaBits = 2048;
/** A signature with a larger key takes long, and no provider requires one. */
const maxRsaBits = 8192;
/** In bytes; an RSA key of 8,192 bits has 4,700. */
const maxKeyBytes = 6 * 1024;
/** The start of a PKCS#8 key of RSA or EC (RFC 5208 §5), in hex. */
const kindPattern = /^30(?:8[12])?(?:..){1,2}02010[01]30(?:81)?..06(?:092a864886f70d010101|072a8648ce3d0201)/;
const curves: Readonly<Record<string, string>> = { ES256: 'prime256v1', ES384: 'secp384r1' };
const privateKeyPattern = /-----BEGIN ((?:[A-Z]+ )?PRIVATE KEY)-----([\s\S]*?)-----END \1-----/;

/** The key for the algorithm, or why the text is none. */
export function readSigningKey(text: string, rules: Rules): SigningKey | { readonly fault: string } {
  return rules.algorithm.startsWith('HS') ? readSecret(text, rules) : readPrivateKey(text, rules);
}

function readSecret(text: string, { algorithm, secret: form }: Rules): SigningKey | { fault: string } {
  const [, keyId, given = ''] =
    form === 'id:hex' ? (/^([^:]+):(.*)$/.exec(text) ?? []) : [text, undefined, text];
  if (form === 'id:hex' && keyId === undefined) return { fault: 'must be an ID, a colon and a key in hex' };
  if (form !== 'text' && !/^([0-9a-f]{2})+$/i.test(given)) return { fault: 'must be a key in hex' };
  const bytes = Buffer.from(given, form === 'text' ? 'utf8' : 'hex');
  // RFC 7518 §3.2.
  const minBytes = Number(algorithm.slice(2)) / 8;
  if (bytes.length < minBytes) return { fault: `must have at least ${minBytes} bytes` };
  return { key: createSecretKey(bytes), ...(keyId !== undefined && { keyId }) };
}

function readPrivateKey(text: string, { algorithm }: Rules): SigningKey | { fault: string } {
  // A shell or an input of one line may have replaced the line breaks of the PEM text.
  const plain = text.replaceAll('\\n', '\n');
  const [, label, body] = privateKeyPattern.exec(plain) ?? [];
  if (label === undefined || body === undefined) return { fault: faultWithoutKey(plain) };
  if (label === 'ENCRYPTED PRIVATE KEY' || body.includes('ENCRYPTED'))
    return {
      fault: 'is encrypted: enter it without its passphrase, as written by `openssl pkey -in key.pem`',
    };
  if (label === 'OPENSSH PRIVATE KEY')
    return { fault: 'is in the format of OpenSSH: convert it with `ssh-keygen -p -m PKCS8`' };
  const lines = body.replaceAll(/\s+/g, '').match(/.{1,64}/g) ?? [];
  const unsuitable = { fault: 'must be an RSA key, or an EC key on a named curve' };
  const der = Buffer.from(lines.join(''), 'base64');
  if (der.length > maxKeyBytes) return unsuitable;
  // Other kinds are refused unread: OpenSSL computes the public key of DSA, which takes seconds for a large one.
  const isKnown =
    label === 'PRIVATE KEY' ? kindPattern.test(der.toString('hex', 0, 64)) : /^(RSA|EC) /.test(label);
  const isDamaged = der[0] !== 0x30;
  if (!isKnown && !isDamaged) return unsuitable;
  let key: KeyObject;
  try {
    key = createPrivateKey([`-----BEGIN ${label}-----`, ...lines, `-----END ${label}-----`].join('\n'));
  } catch {
    return { fault: 'is damaged or incomplete: the text between BEGIN and END is not a private key' };
  }
  const fault = faultOfKind(key, algorithm);
  return fault === undefined ? { key } : { fault };
}

function faultWithoutKey(text: string): string {
  const [, label = ''] = /-----BEGIN ([A-Z0-9 ]+)-----/.exec(text) ?? [];
  if (label.endsWith('PUBLIC KEY')) return 'is a public key: the private key is required';
  if (label.startsWith('CERTIFICATE'))
    return 'is a certificate: the private key that belongs to it is required';
  return label.endsWith('PRIVATE KEY')
    ? 'is incomplete: its last line must be the line with END'
    : 'must be a private key in PEM, from the line with BEGIN to the line with END';
}

function faultOfKind({ asymmetricKeyType: type, asymmetricKeyDetails: of }: KeyObject, algorithm: string) {
  const curve = curves[algorithm];
  if (curve !== undefined)
    return type === 'ec' && of?.namedCurve === curve ? undefined : `must be an EC key on the curve ${curve}`;
  if (type !== 'rsa') return 'must be an RSA key';
  const bits = of?.modulusLength ?? 0;
  if (bits < minRsaBits) return `must be an RSA key of at least ${minRsaBits} bits; it has ${bits}`;
  return bits > maxRsaBits ? `must be an RSA key of at most ${maxRsaBits} bits` : undefined;
}

/** PBES2 with PBKDF2 (RFC 8018 appendix A.2 and A.4) at the start of an encrypted key, in hex; then the salt. */
const encryptedPattern =
  /^30(?:8[12])?(?:..){1,2}30(?:81)?..06092a864886f70d01050d30(?:81)?..30(?:81)?..06092a864886f70d01050c30(?:81)?..04([0-7].)/;
/** The key chooses how long its decryption blocks the process. OpenSSL and Box write 2,048. */
const maxIterations = 10_000;
/** An RSA key of 4,096 bits has 2,450 bytes, encrypted. What kind of key it is shows only afterwards. */
const maxEncryptedBytes = 2600;

/** The key in PEM without its passphrase; the text itself if it cannot be decrypted. */
export function decryptedKey({ text, passphrase }: { text: string; passphrase: string }): string {
  const [, label, body = ''] = privateKeyPattern.exec(text) ?? [];
  const der = Buffer.from(label === 'ENCRYPTED PRIVATE KEY' ? body : '', 'base64');
  const [start = '', saltLength = '0'] = encryptedPattern.exec(der.toString('hex', 0, 200)) ?? [];
  const at = start.length / 2 + Number.parseInt(saltLength, 16);
  const [tag, length = 0] = der.subarray(at);
  const isBounded =
    start !== '' &&
    der.length <= maxEncryptedBytes &&
    tag === 2 &&
    length >= 1 &&
    length <= 3 &&
    der.readUIntBE(at + 2, length) <= maxIterations;
  if (!isBounded) return text;
  try {
    const key = createPrivateKey({ key: der, format: 'der', type: 'pkcs8', passphrase });
    return key.export({ type: 'pkcs8', format: 'pem' }).toString();
  } catch {
    return text;
  }
}

/** SHA-256 of the public key (X.509 SubjectPublicKeyInfo) in base64; undefined for a secret. */
export function fingerprintOf({ key }: SigningKey): string | undefined {
  if (key.type !== 'private') return undefined;
  return hash('sha256', createPublicKey(key).export({ type: 'spki', format: 'der' }), 'base64');
}
