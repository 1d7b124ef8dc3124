import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { revocationUnit, revokeToken } from './revocation.ts';
import { google, json, provider, text } from './token-endpoint.fixture.ts';

describe('a revocation', () => {
  test('contains only the token, without the client, as Google requires', async (t) => {
    const { context, calls } = await provider(t, text('', 'application/json'));
    assert.deepEqual(await revokeToken({ ...context, token: '1//r' }), { ok: true, was: 'ended' });
    assert.equal(calls[0]?.path, '/revoke');
    assert.deepEqual(calls[0]?.form, { token: '1//r' });
    assert.equal(calls[0]?.headers.authorization, undefined);
  });

  test('of a token that is dead already is done', async (t) => {
    const { context } = await provider(
      t,
      json({ error: 'invalid_token', error_description: 'Token expired or revoked' }, 400),
    );
    assert.deepEqual(await revokeToken({ ...context, token: 'r' }), { ok: true, was: 'dead' });
  });

  test('of a token that may have been invalid before is reported as such', async (t) => {
    const { context } = await provider(t, json({}));
    const definition = {
      ...context.definition,
      revocation: { ...context.definition.revocation!, done_errors: [] },
    };
    assert.deepEqual(await revokeToken({ ...context, definition, token: 'r' }), { ok: true, was: 'dead' });
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

describe('what ends with a token', () => {
  const { revocation } = google;
  const of = (unit: 'project' | 'client' | 'token', clientId: string) =>
    revocationUnit({ revocation: { ...revocation!, unit } }, clientId);

  test('is what the clients of one Google project have, old client IDs among them', () => {
    const units = [
      '123-a.apps.googleusercontent.com',
      '123-b.apps.googleusercontent.com',
      '123.apps.googleusercontent.com',
    ];
    assert.equal(new Set(units.map((clientId) => of('project', clientId))).size, 1);
    assert.notEqual(of('project', '1234-a.apps.googleusercontent.com'), of('project', units[0]!));
  });

  test('is what one client has where its ID names no project, or the provider ends by client', () => {
    assert.notEqual(of('project', 'one'), of('project', 'two'));
    assert.notEqual(of('client', '123-a'), of('client', '123-b'));
  });

  test('is nothing else where the provider ends a token alone, or takes no revocation', () => {
    assert.equal(of('token', '123-a'), undefined);
    assert.equal(revocationUnit({ revocation: undefined }, '123-a'), undefined);
  });
});
