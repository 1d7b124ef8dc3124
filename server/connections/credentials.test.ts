import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { name, refreshTests } from './refresh.fixture.ts';

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
