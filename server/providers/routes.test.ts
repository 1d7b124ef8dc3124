import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import { authModes } from '../auth-modes/modes.ts';
import { brandNames } from '../brand.ts';
import type { Db } from '../db/pool.ts';
import { createHttp } from '../http/server.ts';
import { loadCatalog } from './catalog.ts';
import { providerRoutes, toWire } from './routes.ts';

const directory = join(import.meta.dirname, '../../providers');

test('the steps of a set-up name the redirect URI of this installation', async (t) => {
  const catalog = loadCatalog(directory, authModes);
  const wire = {
    logosUrl: 'https://trellis.example.com/providers/logos',
    modes: catalog.modes,
    redirectUri: 'https://trellis.example.com/oauth/callback',
  };
  const withSteps = catalog.list().filter(({ setup }) => setup !== undefined);
  assert.ok(withSteps.length >= 25, String(withSteps.length));
  for (const definition of withSteps) {
    await t.test(definition.name, () => {
      const steps = toWire(definition, wire).setup?.steps ?? [];
      assert.equal(
        steps.filter((step) => step.endsWith(`: ${wire.redirectUri}`)).length,
        1,
        steps.join('\n'),
      );
      assert.ok(steps.every((step) => !step.includes('{')));
    });
  }
});

test('a logo is the drawing in the folder, else a monogram of the provider, else nothing', async (t) => {
  const baseUrl = 'http://localhost:1';
  const app = await createHttp({
    config: { brand: brandNames('trellis'), trustedProxies: [], baseUrl },
    log: pino({ level: 'silent' }),
    authenticate: { key: () => assert.fail(), session: () => assert.fail() },
    isRootAlias: () => false,
  });
  t.after(() => app.close());
  providerRoutes(app, {
    // The logos are read from folders alone.
    db: undefined as unknown as Db,
    catalog: loadCatalog(directory, authModes),
    baseUrl,
    callbackBaseUrl: baseUrl,
    directories: [directory],
  });
  const logo = (file: string) => app.inject({ url: `/providers/logos/${file}` });

  const drawn = await logo('google-sheet.svg');
  assert.match(drawn.payload, /<title>Google Sheets<\/title><rect x="5"/);
  const monogram = await logo('constant-contact.svg');
  assert.match(monogram.payload, /<title>Constant Contact<\/title>.*>CC<\/text>/);
  for (const answer of [drawn, monogram]) {
    assert.equal(answer.statusCode, 200);
    assert.equal(answer.headers['content-type'], 'image/svg+xml');
    assert.equal(answer.headers['content-security-policy'], 'sandbox');
  }
  for (const file of ['nobody.svg', 'google.svg', 'atlassian.svg']) {
    assert.equal((await logo(file)).statusCode, 404, file);
  }
});
