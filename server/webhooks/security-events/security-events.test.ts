import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { UnsecuredJWT } from 'jose';
import type { Integration } from '../../integrations/store.ts';
import { about, clientId, issuer, openWebhookBench, type WebhookBench } from '../webhooks.fixture.ts';
import { actOn } from './security-events.ts';

let bench: WebhookBench;
let sheets: Integration;
before(async () => {
  bench = await openWebhookBench();
  sheets = await bench.integrate('sheets');
});
after(() => bench.end());
beforeEach(() => {
  Object.assign(bench.provider.state, {
    served: [bench.provider.keys.own],
    status: 200,
    isGrantDead: false,
    isTokenDown: false,
  });
});
afterEach(() => bench.clear());

const pushed = async (...given: Parameters<WebhookBench['provider']['sign']>) =>
  bench.push(await bench.provider.sign(...given));
const statusOf = async (connection: Parameters<WebhookBench['now']>[0]) =>
  (await bench.now(connection)).status;

describe('an event about an account', () => {
  for (const [type, more] of [
    ['sessions-revoked', {}],
    ['account-disabled', { reason: 'hijacking' }],
    ['account-purged', {}],
    ['account-credential-change-required', {}],
  ] as const) {
    test(`${type} ends its connections, once, with evidence, before it is answered`, async () => {
      const [one, stranger] = [await bench.connect(sheets, 'ada'), await bench.connect(sheets, 'bob')];
      const answer = await pushed({ events: about('ada', type, more) });
      assert.deepEqual([answer.status, answer.text], [202, '']);
      const { status, fault } = await bench.now(one);
      assert.equal(status, 'needs_reauth');
      assert.equal(fault?.cause, 'security_event');
      assert.deepEqual(fault?.evidence, { event: `risc/event-type/${type}`, ...more });
      assert.equal(await statusOf(stranger), 'active');
      assert.deepEqual(
        (await bench.events()).map(({ type: name, data }) => [name, data.connection_id, data.cause]),
        [['connection.needs_reauth', one.connectionId, 'security_event']],
      );
    });
  }

  test('ends those of every integration with the client it is for, in any environment, and no others', async () => {
    const [prod, other] = [
      await bench.integrate('anywhere', 'prod'),
      await bench.integrate('other', 'dev', '222-b.apps.googleusercontent.com'),
    ];
    const [here, there, elsewhere] = [
      await bench.connect(sheets, 'ada'),
      await bench.connect(prod, 'ada'),
      await bench.connect(other, 'ada'),
    ];
    await pushed({
      events: about('ada', 'sessions-revoked'),
      aud: ['333-c.apps.googleusercontent.com', clientId],
    });
    assert.deepEqual(
      [await statusOf(here), await statusOf(there), await statusOf(elsewhere)],
      ['needs_reauth', 'needs_reauth', 'active'],
    );
    assert.deepEqual((await bench.events()).map(({ environment }) => environment).sort(), ['dev', 'prod']);
  });

  test('that comes twice, or twenty times at once, is acted upon once', async () => {
    const one = await bench.connect(sheets, 'ada');
    const token = await bench.provider.sign({ events: about('ada', 'sessions-revoked') });
    const answers = await Promise.all(Array.from({ length: 20 }, () => bench.push(token)));
    assert.deepEqual([...new Set(answers.map(({ status }) => status))], [202]);
    assert.equal((await bench.events()).length, 1);
    await bench.db.query(`update connection set status = 'active', fault = null where id = $1`, [one.id]);
    assert.equal((await bench.push(token)).status, 202);
    assert.equal(await statusOf(one), 'active');
  });

  test('that is older than the grant changes nothing', async () => {
    const one = await bench.connect(sheets, 'ada');
    const iat = Math.floor(Date.now() / 1000) - 60;
    assert.equal((await pushed({ events: about('ada', 'sessions-revoked'), iat })).status, 202);
    assert.equal(await statusOf(one), 'active');
  });

  test('of an unknown type, of a foreign issuer, or about no known account changes nothing and is accepted', async () => {
    const one = await bench.connect(sheets, 'ada');
    const foreign = { subject: { subject_type: 'iss-sub', iss: 'https://elsewhere.example', sub: 'ada' } };
    for (const events of [
      about('ada', 'account-of-tomorrow'),
      { 'https://schemas.openid.net/secevent/risc/event-type/sessions-revoked': foreign },
      { 'https://schemas.openid.net/secevent/risc/event-type/sessions-revoked': {} },
      { 'https://schemas.openid.net/secevent/risc/event-type/verification': { state: 'hello' } },
    ]) {
      assert.equal((await pushed({ events })).status, 202);
    }
    assert.equal(await statusOf(one), 'active');
  });
});

describe('events about several accounts', () => {
  const both = (one: string, other: string) => ({
    ...about(one, 'sessions-revoked'),
    ...about(other, 'account-disabled'),
  });

  test('twenty at once, which name them in one order and in the other, are all taken', async () => {
    const all = await Promise.all(['ada', 'bob'].map((account) => bench.connect(sheets, account)));
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) =>
        pushed({ events: n % 2 === 0 ? both('ada', 'bob') : both('bob', 'ada') }),
      ),
    );
    assert.deepEqual([...new Set(answers.map(({ status }) => status))], [202]);
    assert.deepEqual(await Promise.all(all.map(statusOf)), ['needs_reauth', 'needs_reauth']);
    assert.equal((await bench.events()).length, 2);
  });

  test('that deadlock with another transaction are rolled back, deferred, and accepted when they are sent again', async () => {
    const [one, other] = [await bench.connect(sheets, 'ada'), await bench.connect(sheets, 'bob')];
    const token = await bench.provider.sign({ events: both('ada', 'bob') });
    const lock = 'select from connection where id = $1 for update';
    const answer = await bench.db.transaction(async (tx) => {
      // So that it is the event that is given up.
      await tx.query("set local deadlock_timeout = '60s'");
      await tx.query(lock, [other.id]);
      const answered = bench.push(token);
      const waiting = () =>
        bench.db.query(
          `select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`,
        );
      while ((await waiting()).length === 0) await wait(5);
      await tx.query(lock, [one.id]);
      return answered;
    });
    assert.deepEqual([answer.status, answer.headers.get('retry-after')], [503, '1']);
    assert.deepEqual(await Promise.all([one, other].map(statusOf)), ['active', 'active']);
    assert.equal((await bench.push(token)).status, 202);
    assert.deepEqual(await Promise.all([one, other].map(statusOf)), ['needs_reauth', 'needs_reauth']);
  });
});

describe('an event about one token', () => {
  const type = 'https://schemas.openid.net/secevent/oauth/event-type/token-revoked';
  const sha512 = (data: string | Buffer) => createHash('sha512').update(data).digest();
  const refreshToken = '1//0aabbccddeeff-the-rest-of-it';
  for (const [algorithm, token] of [
    ['prefix', refreshToken.slice(0, 16)],
    ['hash_base64_sha512_sha512', sha512(sha512(refreshToken)).toString('base64')],
  ]) {
    test(`ends the one connection that has it, identified by ${algorithm}`, async () => {
      const one = await bench.connect(sheets, 'ada', refreshToken);
      const other = await bench.connect(sheets, 'ada');
      const subject = {
        subject_type: 'oauth_token',
        token_type: 'refresh_token',
        token_identifier_alg: algorithm,
        token,
      };
      assert.equal((await pushed({ events: { [type]: { subject } } })).status, 202);
      assert.deepEqual([await statusOf(one), await statusOf(other)], ['needs_reauth', 'active']);
    });
  }
});

describe('an event about a token', () => {
  const byPrefix = (token: string) => {
    const subject = { subject_type: 'oauth_token', token_identifier_alg: 'prefix', token };
    return { 'https://schemas.openid.net/secevent/oauth/event-type/token-revoked': { subject } };
  };
  const alike = (end: string) => `1//0aabbccddeeff-${end}`;

  test('ends the connection that holds it although the credentials of another cannot be opened', async () => {
    const [bad, one] = [
      await bench.connect(sheets, 'ada', alike('one')),
      await bench.connect(sheets, 'ada', alike('two')),
    ];
    await bench.db.query(`update connection set credentials = '\\x00' where id = $1`, [bad.id]);
    assert.equal((await pushed({ events: byPrefix(alike('t')) })).status, 202);
    assert.equal(await statusOf(one), 'needs_reauth');
  });

  test('is about the connection that holds it now, not about one whose token merely begins alike', async () => {
    const [one, other] = [
      await bench.connect(sheets, 'ada', alike('one')),
      await bench.connect(sheets, 'ada', alike('other')),
    ];
    await bench.rotate(one, '1//0gghhiijjkkll-the-next');
    await pushed({ events: byPrefix(alike('on')) });
    assert.deepEqual([await statusOf(one), await statusOf(other)], ['active', 'active']);
    await pushed({ events: byPrefix('1//0gghhiijjkkll') });
    assert.deepEqual([await statusOf(one), await statusOf(other)], ['needs_reauth', 'active']);
  });
});

describe('an event and a connection with a client of its own', () => {
  const own = '999-x.apps.googleusercontent.com';
  const connectOwn = (refreshToken?: string) => bench.connect(sheets, 'ada', refreshToken, own);
  const oauth = (type: string, subject: object) => ({
    [`https://schemas.openid.net/secevent/oauth/event-type/${type}`]: { subject },
  });
  const allTokens = oauth('tokens-revoked', { subject_type: 'iss-sub', iss: issuer, sub: 'ada' });

  test('a grant to the client of its integration does not concern it', async () => {
    const [plain, mine] = [await bench.connect(sheets, 'ada'), await connectOwn('1//0aabbccddeeff-mine')];
    await pushed({ events: allTokens });
    assert.deepEqual([await statusOf(plain), await statusOf(mine)], ['needs_reauth', 'active']);
    const [algorithm, token] = ['prefix', '1//0aabbccddeeff'];
    const subject = { subject_type: 'oauth_token', token_identifier_alg: algorithm, token };
    await pushed({ events: oauth('token-revoked', subject) });
    assert.equal(await statusOf(mine), 'active');
    await bench.db.query('update connection set own_client_id = null');
    await pushed({ events: allTokens, aud: [clientId, own] });
    assert.equal(await statusOf(mine), 'active', 'its client is not known');
  });

  test('a grant to its own client does, under any integration', async () => {
    const elsewhere = await bench.integrate('elsewhere', 'prod', '222-a.apps.googleusercontent.com');
    const theirs = await bench.connect(elsewhere, 'ada');
    const all = [await connectOwn(), await bench.connect(elsewhere, 'ada', undefined, own)];
    await pushed({ events: allTokens, aud: [clientId, own] });
    assert.deepEqual(await Promise.all(all.map(statusOf)), ['needs_reauth', 'needs_reauth']);
    assert.equal(await statusOf(theirs), 'active');
  });

  test('what happens to the account is, and it is tried again with the others', async () => {
    const mine = await connectOwn();
    await pushed({ events: about('ada', 'account-disabled') });
    assert.equal(await statusOf(mine), 'needs_reauth');
    await pushed({ events: about('ada', 'account-enabled') });
    await bench.retryAfter(10 * 60_000);
    assert.equal(await statusOf(mine), 'active');
  });
});

describe('an account that is enabled again', () => {
  test('is tried by another node where the one that took the event was killed', async () => {
    const one = await bench.connect(sheets, 'ada');
    await pushed({ events: about('ada', 'account-disabled') });
    const killed = { ...bench.db, query: () => Promise.reject(new Error('killed after the commit')) };
    const event = {
      type: 'risc/event-type/account-enabled',
      reason: undefined,
      subject: { kind: 'account' as const, id: 'ada' },
    };
    await actOn(
      { ...bench.deps, db: killed },
      {
        token: { issuer, jti: 'enabled', issuedAt: new Date(), audience: [clientId], events: [event] },
        integration: sheets,
        rules: sheets.provider.security_events!,
      },
    );
    assert.equal(await statusOf(one), 'needs_reauth');
    await bench.retryAfter(10 * 60_000);
    assert.equal(await statusOf(one), 'active');
  });

  test('is tried until the provider has judged', async () => {
    const one = await bench.connect(sheets, 'ada');
    await pushed({ events: about('ada', 'account-disabled') });
    bench.provider.state.isTokenDown = true;
    await pushed({ events: about('ada', 'account-enabled') });
    await bench.retryAfter(10 * 60_000);
    assert.equal(await statusOf(one), 'needs_reauth');
    bench.provider.state.isTokenDown = false;
    await bench.retryAfter(30 * 60_000);
    assert.equal(await statusOf(one), 'active');
    const waiting = await bench.db.query('select from connection where retry_at is not null');
    assert.deepEqual(waiting, []);
  });

  test('is not refused by the failure of another attempt that the provider did not judge', async () => {
    const one = await bench.connect(sheets, 'ada');
    await pushed({ events: about('ada', 'account-disabled') });
    const seen = await bench.deps.reader.get(one);
    bench.provider.state.isTokenDown = true;
    const isUnjudged = { code: 'connection_refresh_failed' };
    await assert.rejects(bench.deps.credentials.refreshed(seen), isUnjudged);
    await assert.rejects(bench.deps.credentials.refreshed(seen), isUnjudged);
    bench.provider.state.isTokenDown = false;
  });

  test('is left alone once the provider has refused it', async () => {
    const one = await bench.connect(sheets, 'ada');
    await pushed({ events: about('ada', 'account-disabled') });
    bench.provider.state.isGrantDead = true;
    await pushed({ events: about('ada', 'account-enabled') });
    await bench.retryAfter(10 * 60_000);
    bench.provider.state.isGrantDead = false;
    await bench.retryAfter(30 * 60_000);
    assert.equal(await statusOf(one), 'needs_reauth');
  });

  test('has its connections tried, and those that work are active', async () => {
    const one = await bench.connect(sheets, 'ada');
    await pushed({ events: about('ada', 'account-disabled') });
    await pushed({ events: about('ada', 'account-enabled') });
    for (let waits = 0; waits < 300 && (await statusOf(one)) !== 'active'; waits += 1) await wait(10);
    assert.equal(await statusOf(one), 'active');
    assert.equal((await bench.events()).at(-1)?.type, 'connection.recovered');
  });

  test('leaves alone what ended for another reason', async () => {
    const one = await bench.connect(sheets, 'ada');
    await bench.db.query(
      `update connection set status = 'needs_reauth', fault = '{"cause":"grant_dead"}' where id = $1`,
      [one.id],
    );
    await pushed({ events: about('ada', 'account-enabled') });
    assert.equal(await statusOf(one), 'needs_reauth');
  });
});

describe('a token is refused', () => {
  const events = about('ada', 'sessions-revoked');
  const now = () => Math.floor(Date.now() / 1000);
  for (const [name, err, make] of [
    [
      'signed by another key',
      'authentication_failed',
      () => sign({ events }, { key: bench.provider.keys.foreign }),
    ],
    ['that is not signed', 'authentication_failed', async () => unsigned({ events })],
    ['of another issuer', 'invalid_issuer', () => sign({ events, iss: 'https://elsewhere.example' })],
    ['for another client', 'invalid_audience', () => sign({ events, aud: 'another' })],
    ['of the future', 'invalid_request', () => sign({ events, iat: now() + 3600 })],
    ['of long ago', 'invalid_request', () => sign({ events, iat: now() - 30 * 24 * 3600 })],
    ['without events, such as an ID token', 'invalid_request', () => sign({ sub: 'ada' })],
    ['without a name of its own', 'invalid_request', () => sign({ events, jti: '' })],
    ['that is none', 'invalid_request', async () => 'a.b.c'],
    ['that is empty', 'invalid_request', async () => ' '],
  ] as const) {
    test(`${name}: 400 ${err}, and nothing changes`, async () => {
      const one = await bench.connect(sheets, 'ada');
      const answer = await bench.push(await make());
      assert.equal(answer.status, 400, answer.text);
      assert.equal(answer.body.err, err);
      assert.ok(String(answer.body.description).length > 10);
      assert.equal(await statusOf(one), 'active');
    });
  }
  const sign = (...given: Parameters<WebhookBench['provider']['sign']>) => bench.provider.sign(...given);
  const unsigned = (claims: object) =>
    new UnsecuredJWT({ ...claims, jti: 'x' }).setIssuer(issuer).setAudience(clientId).setIssuedAt().encode();
});

test('an unknown address, a provider without security events, another content type, a body too large', async () => {
  const token = await bench.provider.sign({ events: about('ada', 'sessions-revoked') });
  assert.equal((await bench.push(token, { path: '/webhook/none/sheets' })).status, 404);
  assert.equal((await bench.push(token, { path: '/webhook/dev/none' })).status, 404);
  assert.equal((await bench.push(token, { path: '/webhook/prod/sheets' })).status, 404);
  assert.equal((await bench.push('{}', { type: 'application/json' })).status, 415);
  assert.equal((await bench.push(token, { type: 'text/plain' })).status, 415);
  assert.equal((await bench.push('x'.repeat(70_000))).status, 413);
});
