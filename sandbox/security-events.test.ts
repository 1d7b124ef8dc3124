import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import test, { type TestContext } from 'node:test';
import { createRemoteJWKSet, decodeJwt, errors, jwtVerify } from 'jose';
import { eventTypes } from './security-events.ts';
import { type Bench, openBench } from './testing.ts';

interface Posted {
  type: string | undefined;
  body: string;
}

/** A receiver on this machine that answers `status` and keeps what it got. */
async function openReceiver(t: TestContext, status = 202): Promise<{ url: string; posted: Posted[] }> {
  const posted: Posted[] = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    posted.push({ type: request.headers['content-type'], body });
    response.writeHead(status).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(async () => {
    server.close();
    server.closeAllConnections();
    await once(server, 'close');
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/events`, posted };
}

async function verify(bench: Bench, token: string, audience = bench.sandbox.client.clientId) {
  const config = await fetch(`${bench.sandbox.url}/.well-known/risc-configuration`);
  const { issuer, jwks_uri: jwksUri } = (await config.json()) as { issuer: string; jwks_uri: string };
  return jwtVerify(token, createRemoteJWKSet(new URL(jwksUri)), { issuer, audience, typ: 'secevent+jwt' });
}

test('a security event is signed by the key of the provider and names the account', async (t) => {
  const bench = await openBench(t);
  const receiver = await openReceiver(t);
  const { accounts } = await bench.control<{ accounts: { sub: string }[] }>('GET /accounts');
  const answer = await bench.control('POST /security-events', {
    account: 'ada@example.com',
    type: 'account-disabled',
    receiver: receiver.url,
    jti: 'one',
    reason: 'hijacking',
  });
  assert.deepEqual([answer.status, answer.jti], [202, 'one']);
  const [posted] = receiver.posted;
  assert.equal(posted?.type, 'application/secevent+jwt');
  const { payload, protectedHeader } = await verify(bench, posted!.body);
  assert.equal(protectedHeader.alg, 'RS256');
  assert.equal(payload.jti, 'one');
  assert.equal(payload.exp, undefined, 'RFC 8417 §2.2: an event does not expire');
  const subject = { subject_type: 'iss-sub', iss: bench.sandbox.url, sub: accounts[0]?.sub };
  assert.deepEqual(payload.events, { [eventTypes['account-disabled']]: { subject, reason: 'hijacking' } });
});

test('a forged signature names the right key and does not verify; a foreign audience is told as asked', async (t) => {
  const bench = await openBench(t);
  const receiver = await openReceiver(t, 400);
  const event = { account: 'ada@example.com', type: 'tokens-revoked', receiver: receiver.url };
  const forged = await bench.control('POST /security-events', { ...event, fake_signature: true });
  assert.equal(forged.status, 400);
  await assert.rejects(verify(bench, receiver.posted[0]!.body), errors.JWSSignatureVerificationFailed);
  await bench.control('POST /security-events', { ...event, audience: 'somebody-else' });
  assert.equal((await verify(bench, receiver.posted[1]!.body, 'somebody-else')).payload.aud, 'somebody-else');
});

test('a single token is named by its hash, never by itself', async (t) => {
  const bench = await openBench(t);
  const receiver = await openReceiver(t);
  await bench.control('POST /security-events', {
    account: 'ada@example.com',
    type: 'token-revoked',
    receiver: receiver.url,
    refresh_token: '1//0abc',
  });
  const { events } = decodeJwt(receiver.posted[0]!.body) as {
    events: Record<string, { subject: Record<string, string> }>;
  };
  const hash = (text: string | Buffer) => createHash('sha512').update(text).digest();
  const { subject } = events[eventTypes['token-revoked']]!;
  assert.equal(subject.token, hash(hash('1//0abc')).toString('base64'));
});

test('receivers on other machines are refused; one that does not answer is reported as unreachable', async (t) => {
  const bench = await openBench(t);
  const event = { account: 'ada@example.com', type: 'verification' };
  for (const receiver of [
    'https://receiver.example/',
    'http://localhost.example/',
    'http://10.0.0.1/',
    'file:///x',
    'x',
  ]) {
    assert.equal((await bench.ask('POST /security-events', { ...event, receiver })).status, 400, receiver);
    assert.equal((await bench.ask('POST /receivers', { url: receiver })).status, 400, receiver);
  }
  const nobody = await bench.control('POST /security-events', { ...event, receiver: 'http://127.0.0.1:9/' });
  assert.equal(nobody.status, 'unreachable');
});

test('a registered receiver gets the events of accounts that granted the client an identity scope, and no others', async (t) => {
  const bench = await openBench(t);
  const receiver = await openReceiver(t);
  await bench.control('POST /receivers', { url: receiver.url });
  await bench.connect();
  await bench.connect(
    { scope: 'openid https://www.googleapis.com/auth/spreadsheets' },
    { account: 'grace@example.com' },
  );
  const acts: [string, unknown][] = [
    ['POST /password', { account: 'ada@example.com' }],
    ['POST /accounts', { email: 'ada@example.com', standing: 'disabled' }],
    ['POST /accounts', { email: 'ada@example.com', standing: 'disabled' }],
    ['POST /accounts', { email: 'ada@example.com', standing: 'active' }],
    ['POST /revoke', { account: 'ada@example.com' }],
    ['POST /revoke', { account: 'ada@example.com' }],
    ['POST /revoke', { account: 'grace@example.com' }],
  ];
  for (const [route, body] of acts) await bench.control(route, body);
  await bench.connect();
  await bench.control('DELETE /accounts?account=ada@example.com');
  const { deliveries } = await bench.control<{ deliveries: { type: string; status: number }[] }>(
    'GET /receivers',
  );
  assert.deepEqual(deliveries.map(({ type, status }) => `${type} ${status}`).reverse(), [
    'sessions-revoked 202',
    'account-disabled 202',
    'account-enabled 202',
    'tokens-revoked 202',
    'account-purged 202',
  ]);
  assert.equal(receiver.posted.length, 5);
  for (const { body } of receiver.posted) await verify(bench, body);

  const url = encodeURIComponent(receiver.url);
  assert.deepEqual(await bench.control(`DELETE /receivers?url=${url}`), { removed: 1 });
  await bench.control('POST /accounts', { email: 'ada@example.com' });
  await bench.connect();
  await bench.control('POST /revoke', { account: 'ada@example.com' });
  assert.equal(receiver.posted.length, 5);
});
