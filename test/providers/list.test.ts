import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { withTable, withWebhooks } from './table.ts';
import { catalog } from './walk.ts';

test('docs/reference/providers.md lists the providers as they are', () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/reference/providers.md'), 'utf8');
  assert.equal(page, withTable(page, catalog), 'run node scripts/providers.ts');
});

test('at least 600 providers ship, and the facts of at most 250 were not compared with pages of the provider', () => {
  const all = catalog.list();
  assert.ok(all.length >= 600, `${all.length} providers`);
  const imported = all.filter(({ level }) => level === 'community');
  assert.ok(imported.length <= 250, `${imported.length} of the level community`);
  assert.ok(all.filter(({ webhook }) => webhook !== undefined).length >= 30);
});

test('docs/guides/webhooks.md lists the webhooks as they are', () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/guides/webhooks.md'), 'utf8');
  assert.equal(page, withWebhooks(page, catalog), 'run node scripts/providers.ts');
});

test('PKCE goes along where the provider offers it to clients with a secret, and refreshes go where it says', () => {
  // The page that says so is named at the top of each definition.
  for (const name of ['github', 'github-app', 'zoom', 'docusign', 'zendesk']) {
    assert.equal(catalog.get(name).authorization?.pkce, 'S256', name);
  }
  assert.equal(catalog.get('digitalocean').refresh.url, undefined, 'at the token endpoint');
  assert.equal(catalog.get('podio').token?.url, 'https://api.podio.com/oauth/token/v2');
  const zoho = new RegExp(`^(?:${catalog.get('zoho-crm').integration_config.data_centre?.pattern})$`, 'u');
  for (const ending of ['com', 'eu', 'com.cn', 'ae']) assert.match(ending, zoho);
});
