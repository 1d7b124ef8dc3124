import assert from 'node:assert/strict';
import { test } from 'node:test';
import { installationOf } from './queries.ts';

test('addresses to register are those of the service, not of the browser', () => {
  const installation = installationOf('https://trellis.acme.com/providers/logos/google-sheet.svg');
  assert.deepEqual(installation, {
    baseUrl: 'https://trellis.acme.com',
    origin: 'https://trellis.acme.com',
  });
  assert.equal(
    installationOf('http://localhost:3003/providers/logos/a.svg').baseUrl,
    'http://localhost:3003',
  );
});
