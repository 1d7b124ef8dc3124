import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { codeOf, hour, name, refreshTests } from './refresh.fixture.ts';

const t = refreshTests();

describe('an API that refuses every token', () => {
  test('costs one refresh in half a minute, not one per call', async () => {
    await t().open('none');
    const one = t().node();
    const refuse = async () => {
      const live = await one.live(name);
      return one.credentials.renewed(live, live.credentials);
    };
    assert.notEqual(await refuse(), undefined);
    for (let call = 0; call < 10; call += 1) assert.equal(await refuse(), undefined);
    assert.equal(t().grant.asked, 1);
    t().time += 30_000;
    assert.notEqual(await refuse(), undefined);
    assert.equal(t().grant.asked, 2);
  });

  test('costs one refresh where twenty calls learn it at once', async () => {
    await t().open('none');
    const one = t().node();
    const live = await one.live(name);
    const got = await Promise.all(
      Array.from({ length: 20 }, () => one.credentials.renewed(live, live.credentials)),
    );
    assert.equal(new Set(got.map((credentials) => JSON.stringify(credentials))).size, 1);
    assert.equal(t().grant.asked, 1);
  });
});

describe('an API that refuses every token, on four nodes', () => {
  test('costs one refresh in half a minute, not one per node', async () => {
    await t().open('none');
    const four = [t().node(), t().node(), t().node(), t().node()];
    const refuse = async () => {
      for (const node of four) {
        const live = await node.live(name);
        await node.credentials.renewed(live, live.credentials);
      }
    };
    await refuse();
    assert.equal(t().grant.asked, 1);
    t().time += 30_000;
    await refuse();
    assert.equal(t().grant.asked, 2);
    // A time from a node whose clock was ahead does not prevent the next write.
    t().time -= hour;
    await refuse();
    assert.equal(t().grant.asked, 3);
  });
});

describe('a token in its last seconds', () => {
  const refusals = {
    'the provider is out of order': { status: 503, error: 'server_error' },
    'it refuses the client': { status: 401, error: 'invalid_client' },
    'it does not let the client use the token': { status: 401, error: 'unauthorized_client' },
  };
  for (const [failure, refusal] of Object.entries(refusals)) {
    test(`is used if ${failure}, and the error is reported once it has expired`, async () => {
      await t().open('none');
      await t().bench.connect(name, new Date(t().time + 20_000));
      t().bench.provider.plan = () => ({ refusal });
      const one = t().node();
      for (let call = 0; call < 3; call += 1) assert.match((await t().fresh(one)).access_token, /^first~/);
      assert.equal(t().grant.asked, 1);
      t().time += 20_000;
      const code = refusal.status === 503 ? 'connection_refresh_failed' : 'integration_misconfigured';
      assert.equal(await codeOf(t().fresh(one)), code);
    });
  }

  test('is not used where its grant has ended', async () => {
    await t().open('none');
    await t().bench.connect(name, new Date(t().time + 20_000));
    t().grant.good = [];
    assert.equal(await codeOf(t().fresh(t().node())), 'connection_needs_reauth');
  });
});
