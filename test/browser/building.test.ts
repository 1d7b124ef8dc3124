// The page that is shown until the dashboard is built, in a browser.
// Slow: it drives Chromium.
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fastify } from 'fastify';
import { brandNames } from '../../server/brand.ts';
import { type Building, staticRoutes } from '../../server/http/pages/static.ts';
import type { App } from '../../server/http/server.ts';
import { openBrowser, skipBrowser, type TestBrowser } from '../support/browser.ts';

describe('the page that is shown while the dashboard is being built', { skip: skipBrowser }, () => {
  let directory: string;
  let app: App;
  let browser: TestBrowser;
  let building: Building = { is: 'running' };

  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'trellis-web-'));
    app = fastify() as unknown as App;
    await staticRoutes(app, {
      web: { directory, building: () => building },
      brand: brandNames('acme'),
      baseUrl: 'http://localhost/',
      frameAncestors: [],
    });
    browser = await openBrowser();
  });
  after(async () => {
    await browser.close();
    await app.close();
    await rm(directory, { recursive: true });
  });

  test('the dashboard replaces the page when it is built, and the fragment of a set-up link stays', async () => {
    const page = await browser.newPage();
    await page.goto(`${await app.listen({ port: 0 })}/app/invitation#the-token`);
    await page.getByRole('heading', { name: 'The dashboard is being built' }).waitFor();

    await mkdir(join(directory, 'dashboard'));
    await writeFile(
      join(directory, 'dashboard/index.html'),
      '<html><body><p id="at"></p><script nonce="__NONCE__">at.textContent = location.hash</script></body></html>',
    );
    building = { is: 'none' };

    await page.getByText('#the-token').waitFor();
  });
});
