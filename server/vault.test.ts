import assert from 'node:assert/strict';
import { createDecipheriv, createSecretKey, randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { openVault } from './vault.ts';

const masterKey = (id: string) => ({ id, key: createSecretKey(randomBytes(32)) });

test('what a data key seals, it opens, and only under the same context', () => {
  const { key } = openVault([masterKey('a')]).createDataKey();
  const sealed = key.seal('hello', 'greeting');
  assert.equal(key.open(sealed, 'greeting').toString(), 'hello');
  assert.throws(() => key.open(sealed, 'farewell'));
});

test('a changed byte is detected at every position', () => {
  const { key } = openVault([masterKey('a')]).createDataKey();
  const sealed = key.seal('hello', 'greeting');
  for (let at = 0; at < sealed.length; at += 1) {
    const changed = Buffer.from(sealed);
    changed[at]! ^= 1;
    assert.throws(() => key.open(changed, 'greeting'), `byte ${at}`);
  }
  for (const length of [0, 1, 28]) assert.throws(() => key.open(sealed.subarray(0, length), 'greeting'));
});

test('a large value, which passes the cipher in parts, has the form of a small one', () => {
  const { key } = openVault([masterKey('a')]).createDataKey();
  const partBytes = 256 * 1024;
  for (const length of [partBytes, partBytes + 1, 2 * partBytes, 9 * partBytes + 7]) {
    const plain = randomBytes(length);
    const sealed = key.seal(plain, 'large');
    const decipher = createDecipheriv('aes-256-gcm', key.subkey('seal'), sealed.subarray(1, 13));
    decipher.setAAD(Buffer.from('large')).setAuthTag(sealed.subarray(-16));
    assert.ok(decipher.update(sealed.subarray(13, -16)).equals(plain));
    decipher.final();
    assert.ok(key.open(sealed, 'large').equals(plain));
    const text = 'ü'.repeat(length / 2);
    assert.ok(key.open(key.seal(text, 'large'), 'large').equals(Buffer.from(text)));
    sealed[length]! ^= 1;
    assert.throws(() => key.open(sealed, 'large'));
  }
});

test('equal values are sealed differently', () => {
  const { key } = openVault([masterKey('a')]).createDataKey();
  const [one, two] = key.sealMany([
    { plain: 'same', context: 'c' },
    { plain: 'same', context: 'c' },
  ]);
  assert.notDeepEqual(one, two);
  assert.equal(key.open(two!, 'c').toString(), 'same');
});

test('another master key behind the first still unwraps what it wrapped', () => {
  const [old, young] = [masterKey('old'), masterKey('young')];
  const { key, wrapped } = openVault([old]).createDataKey();
  const sealed = key.seal('hello', 'c');
  assert.equal(openVault([young, old]).unwrap(wrapped).open(sealed, 'c').toString(), 'hello');
  assert.throws(() => openVault([young]).unwrap(wrapped), /"old"/);
});

test('a rewrapped data key is the same key, and needs the first master key alone', () => {
  const [old, young] = [masterKey('old'), masterKey('young')];
  const { key, wrapped } = openVault([old]).createDataKey();
  const sealed = key.seal('hello', 'c');
  const fresh = openVault([young, old]).rewrap(wrapped);
  assert.equal(openVault([young]).unwrap(fresh).open(sealed, 'c').toString(), 'hello');
  assert.throws(() => openVault([old]).unwrap(fresh), /"young"/);
  assert.throws(() => openVault([young]).rewrap(wrapped), /"old"/);
});
