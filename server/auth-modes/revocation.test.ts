import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { revokeToken } from './revocation.ts';
import { json, provider, text } from './token-endpoint.fixture.ts';

describe('a revocation', () => {
  test('names the token alone, without the client, as Google asks', async (t) => {
    const { context, calls } = await provider(t, text('', 'application/json'));
    assert.deepEqual(await revokeToken({ ...context, token: '1//r' }), { ok: true });
    assert.equal(calls[0]?.path, '/revoke');
    assert.deepEqual(calls[0]?.form, { token: '1//r' });
    assert.equal(calls[0]?.headers.authorization, undefined);
  });

  test('of a token that is dead already is done', async (t) => {
    const { context } = await provider(
      t,
      json({ error: 'invalid_token', error_description: 'Token expired or revoked' }, 400),
    );
    assert.deepEqual(await revokeToken({ ...context, token: 'r' }), { ok: true });
  });

  test('during an outage is to be repeated', async (t) => {
    const { context } = await provider(t, json({}, 503));
    const outcome = await revokeToken({ ...context, token: 'r' });
    assert.ok(!outcome.ok);
    assert.equal(outcome.fault.kind, 'transient');
  });

  test('is a fault where the provider has none', async (t) => {
    const { context, calls } = await provider(t, json({}));
    const { revocation: _none, ...definition } = context.definition;
    assert.partialDeepStrictEqual(await revokeToken({ ...context, definition, token: 'r' }), {
      ok: false,
      fault: { error: 'revocation_unsupported' },
    });
    assert.equal(calls.length, 0);
  });
});
