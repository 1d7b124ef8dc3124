import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { test } from 'node:test';
import type { UnsavedConnection } from '../../connections/store/hooks.ts';
import type { ConnectionReader, LiveConnection } from '../../connections/store/reader.ts';
import { AppError } from '../../errors.ts';
import { openVault } from '../../vault.ts';
import { createUnsavedConnections } from './on-event.ts';

test('two candidates of one ID at once are each judged by their own credentials', async () => {
  const vault = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
  const nobody = async (): Promise<LiveConnection> => {
    throw new AppError('unknown_connection');
  };
  const stored = { get: nobody, known: () => undefined } as unknown as ConnectionReader;
  const { reader, during } = createUnsavedConnections(stored, { vault, now: () => new Date() });
  const candidate = (apiKey: string) =>
    ({
      integration: { id: 1, environmentId: 1, key: 'api', provider: { name: 'api' } },
      connectionId: 'wanted',
      credentials: { type: 'API_KEY', apiKey },
    }) as unknown as UnsavedConnection;
  const seen = async (of: LiveConnection) => (await reader.get(of)).credentials;
  await during(candidate('first'), async (first) => {
    await during(candidate('second'), async (second) => {
      assert.deepEqual(await seen(second), { type: 'API_KEY', apiKey: 'second' });
    });
    assert.deepEqual(await seen(first), { type: 'API_KEY', apiKey: 'first' });
  });
  await assert.rejects(reader.get({ environmentId: 1, integrationKey: 'api', connectionId: 'wanted' }), {
    code: 'unknown_connection',
  });
});
