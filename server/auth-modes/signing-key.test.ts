import assert from 'node:assert/strict';
import { createCipheriv, generateKeyPairSync, pbkdf2Sync } from 'node:crypto';
import { test } from 'node:test';
import { decryptedKey, readSigningKey } from './signing-key.ts';

const rules = { algorithm: 'RS256', secret: 'text' } as const;
const faultOf = (text: string) => {
  const read = readSigningKey(text, rules);
  return 'fault' in read ? read.fault : undefined;
};
const pemOf = (der: Buffer, label: string) =>
  `-----BEGIN ${label}-----\n${der.toString('base64')}\n-----END ${label}-----\n`;

test('a key of another kind is refused before it is read', () => {
  const { privateKey } = generateKeyPairSync('dsa', { modulusLength: 1024 });
  assert.equal(
    faultOf(privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()),
    'must be an RSA key, or an EC key on a named curve',
  );
  const { privateKey: rsa } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  for (const type of ['pkcs8', 'pkcs1'] as const)
    assert.equal(faultOf(rsa.export({ type, format: 'pem' }).toString()), undefined);
  const long = Buffer.concat([rsa.export({ type: 'pkcs8', format: 'der' }), Buffer.alloc(8192)]);
  assert.equal(faultOf(pemOf(long, 'PRIVATE KEY')), 'must be an RSA key, or an EC key on a named curve');
});

/** A value with its tag and length (X.690 §8.1). */
function tlv(tag: number, ...parts: Buffer[]): Buffer {
  const value = Buffer.concat(parts);
  const { length } = value;
  const head = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...head]), value]);
}

/** A key that is encrypted with PBES2 (RFC 8018 §6.2), AES-256-CBC and SHA-256. */
function encrypted({ salt, rounds }: { salt: Buffer; rounds: number }): string {
  const oid = (hex: string) => tlv(6, Buffer.from(hex, 'hex'));
  const iv = Buffer.alloc(16, 1);
  const cipher = createCipheriv('aes-256-cbc', pbkdf2Sync('word', salt, rounds, 32, 'sha256'), iv);
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const plain = privateKey.export({ type: 'pkcs8', format: 'der' });
  const sha256 = tlv(0x30, oid('2a864886f70d0209'), tlv(5));
  const derivation = tlv(0x30, tlv(4, salt), tlv(2, Buffer.from([rounds >> 8, rounds & 0xff])), sha256);
  const scheme = tlv(
    0x30,
    tlv(0x30, oid('2a864886f70d01050c'), derivation),
    tlv(0x30, oid('60864801650304012a'), tlv(4, iv)),
  );
  const algorithm = tlv(0x30, oid('2a864886f70d01050d'), scheme);
  const data = tlv(4, Buffer.concat([cipher.update(plain), cipher.final()]));
  return pemOf(tlv(0x30, algorithm, data), 'ENCRYPTED PRIVATE KEY');
}

test('an encrypted key is decrypted only with few rounds, wherever it claims their number to be', () => {
  const read = (text: string) => decryptedKey({ text, passphrase: 'word' });
  const usual = encrypted({ salt: Buffer.alloc(8, 2), rounds: 2048 });
  assert.equal(faultOf(read(usual)), undefined);
  const slow = encrypted({ salt: Buffer.alloc(8, 2), rounds: 20_000 });
  assert.equal(read(slow), slow);
  // With the length in two bytes, the first of them is taken for the length of the salt, which holds another number.
  const salt = Buffer.alloc(140, 2);
  salt.set([2, 1, 1], 128);
  const disguised = encrypted({ salt, rounds: 20_000 });
  assert.equal(read(disguised), disguised);
});
