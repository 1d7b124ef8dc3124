import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readAccount } from './account.ts';
import { json, provider } from './token-endpoint.fixture.ts';

describe('an account', () => {
  test('of imported tokens is read from the userinfo endpoint', async (t) => {
    const { context, calls } = await provider(
      t,
      json({ sub: '1077', email: 'ada@example.com', email_verified: true, name: 'Ada' }),
    );
    assert.deepEqual(await readAccount({ ...context, tokens: { accessToken: 'ya29.x' } }), {
      ok: true,
      account: { subject: '1077', email: 'ada@example.com', isEmailVerified: true, name: 'Ada' },
    });
    assert.equal(calls[0]?.path, '/v1/userinfo');
    assert.equal(calls[0]?.headers.authorization, 'Bearer ya29.x');
  });

  for (const [status, kind, error] of [
    [401, 'protocol', 'invalid_token'],
    [403, 'protocol', 'insufficient_scope'],
    [429, 'transient', 'too_many_requests'],
    [502, 'transient', 'server_error'],
  ] as const) {
    test(`that is answered with ${status} is ${kind}`, async (t) => {
      const { context } = await provider(t, json({ error: 'x' }, status));
      assert.deepEqual(await readAccount({ ...context, tokens: { accessToken: 'a' } }), {
        ok: false,
        fault: { kind, error, httpStatus: status },
      });
    });
  }

  test('is empty if the provider does not name it', async (t) => {
    const { context, calls } = await provider(t, json({}));
    const { userinfo: _none, ...definition } = context.definition;
    assert.deepEqual(await readAccount({ ...context, definition, tokens: { accessToken: 'a' } }), {
      ok: true,
      account: {},
    });
    assert.equal(calls.length, 0);
  });
});
