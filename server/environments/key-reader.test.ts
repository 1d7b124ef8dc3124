import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { AppError } from '../errors.ts';
import type { KeyCaller, ProxyCaller, TicketCaller } from '../http/auth/caller.ts';
import { openVault } from '../vault.ts';
import { createKeyReader, type KeyReader } from './key-reader.ts';
import { createKey, findKeysForUpdate, listKeys, revokeKey, updateKey } from './keys.ts';
import { type Environment, ensureEnvironment, environmentKey } from './store.ts';
import { getSigningKey, makeTicket, signingKeyOf } from './tickets.ts';

const vault = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
let database: TestDatabase;
let dev: Environment;
let prod: Environment;
let now = Date.UTC(2030, 0, 1);
before(async () => {
  database = await openTestDatabase();
  dev = (await ensureEnvironment(database.db, { name: 'dev', vault })).environment;
  prod = (await ensureEnvironment(database.db, { name: 'prod', vault })).environment;
});
after(() => database.drop());

const openReader = () => createKeyReader({ db: database.db, vault, now: () => now, clock: () => now });
const newKey = async (given: { expiresAt?: Date; environment?: Environment } = {}) =>
  createKey(database.db, { environment: dev, name: 'k', scopes: ['proxy:read'], ...given });
const grant = {
  integrationKey: 'i',
  connectionId: 'c',
  connectionRow: 1,
  connectionMadeAt: 1,
  maxBytes: undefined,
  methods: ['GET'],
  paths: ['/a'],
};
async function ticketOf(keyId: number, { lifeMs = 600_000, environment = dev } = {}): Promise<string> {
  const key = await environmentKey(database.db, { environmentId: environment.id, vault });
  const [row] = await database.db.query<{ hash: Buffer }>('select hash from api_key where id = $1', [keyId]);
  const signing = signingKeyOf(key, row!.hash);
  return makeTicket(signing, { keyId, grant, expiresAt: new Date(now + lifeMs) }).token;
}
const codeOf = async (asked: () => ProxyCaller | Promise<ProxyCaller>): Promise<string> => {
  try {
    await asked();
    return 'passes';
  } catch (error) {
    return (error as AppError).code;
  }
};

test('within a second of the first look nothing is waited for: not for a key, and not for its tickets', async () => {
  const reader = openReader();
  const { key, secret } = await newKey();
  const tickets = [await ticketOf(key.id), await ticketOf(key.id)];
  assert.ok(reader.key(secret) instanceof Promise);
  assert.ok(reader.ticket(tickets[0]!) instanceof Promise);
  await Promise.all([reader.key(secret), reader.ticket(tickets[0]!)]);
  now += 999;
  assert.equal((reader.key(secret) as KeyCaller).keyId, key.id);
  for (const ticket of tickets) assert.equal((reader.ticket(ticket) as TicketCaller).keyId, key.id);
  assert.equal(reader.ticket(tickets[1]!), reader.ticket(tickets[1]!));
  now += 1;
  for (const asked of [reader.key(secret), reader.ticket(tickets[0]!)]) assert.ok(asked instanceof Promise);
  await reader.settled();
});

test('a second is counted from the question, however long the database takes', async () => {
  let answer: (() => void) | undefined;
  const slow: typeof database.db.run = async (built) => {
    const rows = await database.db.run(built);
    await new Promise<void>((resolve) => {
      answer = resolve;
    });
    return rows;
  };
  const reader = createKeyReader({
    db: { ...database.db, run: slow },
    vault,
    now: () => now,
    clock: () => now,
  });
  const { secret } = await newKey();
  const asked = reader.key(secret);
  const again = reader.key(secret);
  while (answer === undefined) await new Promise(setImmediate);
  now += 999;
  answer();
  await Promise.all([asked, again]);
  assert.ok(!(reader.key(secret) instanceof Promise));
  now += 1;
  assert.ok(reader.key(secret) instanceof Promise);
});

test('a change is in force at once on the notified node, and elsewhere within a second', async () => {
  const [here, elsewhere] = [openReader(), openReader()];
  const { key, secret } = await newKey();
  const ticket = await ticketOf(key.id);
  const holds = async (reader: KeyReader) => [
    (await reader.key(secret)).scopes.has('proxy:write'),
    (await reader.ticket(ticket)).scopes.has('proxy:write'),
  ];
  for (const reader of [here, elsewhere]) assert.deepEqual(await holds(reader), [false, false]);
  const at = { id: key.id, environmentId: dev.id };
  await updateKey(database.db, { key: { ...key, scopes: ['proxy:write'] }, environmentId: dev.id });
  here.forget(key.id);
  assert.deepEqual(await holds(here), [true, true]);
  assert.deepEqual(await holds(elsewhere), [false, false]);
  await revokeKey(database.db, { ...at, at: new Date(now) });
  here.forget(key.id);
  assert.equal(await codeOf(() => here.key(secret)), 'unknown_account');
  assert.equal(await codeOf(() => here.ticket(ticket)), 'invalid_ticket');
  assert.equal(await codeOf(() => elsewhere.key(secret)), 'passes');
  now += 1000;
  assert.equal(await codeOf(() => elsewhere.key(secret)), 'unknown_account');
  assert.equal(await codeOf(() => elsewhere.ticket(ticket)), 'invalid_ticket');
});

test('a key and a ticket end to the second, cached or not', async () => {
  const reader = openReader();
  const { key, secret } = await newKey({ expiresAt: new Date(now + 500) });
  const lasting = await newKey();
  const [ofKey, short] = [await ticketOf(key.id), await ticketOf(lasting.key.id, { lifeMs: 1_000 })];
  const all = () =>
    Promise.all([
      codeOf(() => reader.key(secret)),
      codeOf(() => reader.ticket(ofKey)),
      codeOf(() => reader.ticket(short)),
    ]);
  now = Math.ceil(now / 1000) * 1000 - 1;
  const { key: other, secret: otherSecret } = await newKey({ expiresAt: new Date(now + 500) });
  assert.equal(await codeOf(() => reader.key(otherSecret)), 'passes');
  now += 500;
  assert.equal(await codeOf(() => reader.key(otherSecret)), 'unknown_account');
  assert.equal(await codeOf(async () => reader.ticket(await ticketOf(other.id))), 'invalid_ticket');
  now += 10_000;
  assert.deepEqual(await all(), ['unknown_account', 'invalid_ticket', 'invalid_ticket']);
});

test('no ticket passes that the key of its environment has not signed, letter by letter', async () => {
  const reader = openReader();
  const { key } = await newKey();
  const foreign = await newKey({ environment: prod });
  const ticket = await ticketOf(key.id);
  assert.equal(await codeOf(() => reader.ticket(ticket)), 'passes');
  const [head = '', signature = ''] = ticket.split('.');
  const forged = [
    ticket.replace(`trt_${key.id}_`, `trt_${foreign.key.id}_`),
    await ticketOf(key.id, { environment: prod }),
    await ticketOf(foreign.key.id),
    ticket.replace(`trt_${key.id}_`, `trt_0${key.id}_`),
    ticket.replace(`trt_${key.id}_`, 'trt_999999999999999_'),
    ticket.replace(`trt_${key.id}_`, 'trt__'),
    ticket.replace('trt_', 'trs_'),
    `${ticket}=`, `${ticket}.`, `${head}.`, head, `.${signature}`, `${head}.${signature.slice(0, -1)}`,
    'trt_.', 'trt_1_.', 'trt_1_x.y',
  ]; // biome-ignore format: a list reads better in lines
  for (let at = 0; at < ticket.length; at++) {
    const other = ticket[at] === 'A' ? 'B' : 'A';
    if (at > 4 + String(key.id).length) forged.push(ticket.slice(0, at) + other + ticket.slice(at + 1));
  }
  for (const text of forged) assert.equal(await codeOf(() => reader.ticket(text)), 'invalid_ticket', text);
});

test('the last use is noted once a minute, of a ticket as of its key, and no call waits for it', async () => {
  const reader = openReader();
  const { key, secret } = await newKey();
  const ticket = await ticketOf(key.id);
  const usedAt = async () => {
    await reader.settled();
    return (await listKeys(database.db, dev.id)).find(({ id }) => id === key.id)?.lastUsedAt?.getTime();
  };
  const start = now;
  assert.equal(await usedAt(), undefined);
  await reader.key(secret);
  assert.equal(await usedAt(), start);
  now += 59_999;
  await reader.key(secret);
  assert.equal(await usedAt(), start);
  now += 1_001;
  await reader.ticket(ticket);
  assert.equal(await usedAt(), start + 61_000);

  // A transaction that changes the row holds it: the caller is served all the same.
  now += 60_000;
  await database.db.transaction(async (tx) => {
    await findKeysForUpdate(tx, { ids: [key.id], environmentId: dev.id });
    assert.equal((await reader.key(secret)).keyId, key.id);
  });
  assert.equal(await usedAt(), now);
});

test('a forged or expired ticket does not count as a use of its key', async () => {
  const reader = openReader();
  const { key } = await newKey();
  const ticket = await ticketOf(key.id, { lifeMs: 1 });
  const ended = await ticketOf(key.id, { lifeMs: 0 });
  for (const text of [`trt_${key.id}_AAAA.BBBB`, ended])
    assert.equal(await codeOf(() => reader.ticket(text)), 'invalid_ticket');
  const isUsed = async () => {
    await reader.settled();
    const keys = await listKeys(database.db, dev.id);
    return keys.find(({ id }) => id === key.id)?.lastUsedAt !== undefined;
  };
  assert.equal(await isUsed(), false);
  assert.equal(await codeOf(() => reader.ticket(ticket)), 'passes');
  assert.equal(await isUsed(), true);
});

test('a ticket is valid for its stated lifetime, to the millisecond', async () => {
  const reader = openReader();
  const { key } = await newKey();
  now += 999 - (now % 1000);
  const ticket = await ticketOf(key.id, { lifeMs: 1_000 });
  now += 999;
  assert.equal(await codeOf(() => reader.ticket(ticket)), 'passes');
  now += 1;
  assert.equal(await codeOf(() => reader.ticket(ticket)), 'invalid_ticket');
});

test('a key that gets the number of another one has not made its tickets', async () => {
  const before = await newKey();
  const ticket = await ticketOf(before.key.id);
  const again = await newKey();
  await database.db.query('delete from api_key where id = $1', [before.key.id]);
  const { id } = before.key;
  await database.db.query(
    `insert into api_key (id, environment_id, name, hash, hint, scopes)
     overriding system value
     select $1, environment_id, name, decode('00', 'hex'), hint, scopes
     from api_key
     where id = $2`,
    [id, again.key.id],
  );
  const reader = openReader();
  assert.equal(await codeOf(() => reader.ticket(ticket)), 'invalid_ticket');
  assert.equal(await codeOf(async () => reader.ticket(await ticketOf(id))), 'passes');
});

test('an expired key gets its own error', async () => {
  const reader = openReader();
  const { secret } = await newKey({ expiresAt: new Date(now + 500) });
  await reader.key(secret);
  now += 500;
  await assert.rejects(async () => reader.key(secret), /has expired/);
});

test('a key signs tickets for as long as it is not revoked, and in its environment alone', async () => {
  const { key } = await newKey();
  const at = { keyId: key.id, environmentId: dev.id, vault };
  await getSigningKey(database.db, at);
  await assert.rejects(getSigningKey(database.db, { ...at, environmentId: prod.id }), {
    code: 'unknown_account',
  });
  await revokeKey(database.db, { id: key.id, environmentId: dev.id, at: new Date(now) });
  await assert.rejects(getSigningKey(database.db, at), { code: 'unknown_account' });
});

test('keys of another environment are out of reach', async () => {
  const { key } = await newKey();
  const at = { id: key.id, environmentId: prod.id };
  const found = await database.db.transaction((tx) =>
    findKeysForUpdate(tx, { ids: [key.id], environmentId: prod.id }),
  );
  assert.equal(found.size, 0);
  assert.equal(await revokeKey(database.db, { ...at, at: new Date(now) }), undefined);
  await updateKey(database.db, { key: { ...key, name: 'taken' }, environmentId: prod.id });
  assert.equal((await listKeys(database.db, dev.id)).find(({ id }) => id === key.id)?.name, 'k');
  assert.ok((await listKeys(database.db, prod.id)).every(({ id }) => id !== key.id));
});

test('the lookup of a key that was not valid lately needs permission; other keys are served', async () => {
  const reader = openReader();
  const { key, secret } = await newKey();
  const ticket = await ticketOf(key.id);
  let asked = 0;
  const admit = () => {
    asked += 1;
  };
  const refuse = () => {
    throw new AppError('too_many_requests');
  };
  const unknownTicket = ticket.replace(/^trt_\d+_/, 'trt_999999_');
  assert.equal(await codeOf(() => reader.key(secret, refuse)), 'too_many_requests');
  assert.equal(await codeOf(() => reader.ticket(ticket, refuse)), 'too_many_requests');
  await reader.key(secret, admit);
  await reader.ticket(ticket, admit);
  assert.equal(asked, 2);
  // Cached no longer, and remembered.
  now += 3_600;
  await reader.key(secret, refuse);
  await reader.ticket(ticket, refuse);
  for (const wrong of [`${secret}x`, secret.toLowerCase()])
    assert.equal(await codeOf(() => reader.key(wrong, refuse)), 'too_many_requests');
  assert.equal(await codeOf(() => reader.ticket(unknownTicket, refuse)), 'too_many_requests');
  // One that is revoked is looked up once more, and is none that was good from then on.
  await revokeKey(database.db, { id: key.id, environmentId: dev.id, at: new Date() });
  now += 1_001;
  assert.equal(await codeOf(() => reader.key(secret, refuse)), 'unknown_account');
  assert.equal(await codeOf(() => reader.ticket(ticket, refuse)), 'invalid_ticket');
  assert.equal(await codeOf(() => reader.key(secret, refuse)), 'too_many_requests');
  assert.equal(await codeOf(() => reader.ticket(ticket, refuse)), 'too_many_requests');
  await reader.settled();
});
