// The pictures of README.md are of a page of the dashboard. PICTURES=readme writes them again.
// Slow: it drives Chromium.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { skipBrowser } from '../support/browser.ts';
import { openDashboard, type TestDashboard } from '../support/dashboard.ts';
import { connect } from '../support/trellis.ts';

const root = join(import.meta.dirname, '../..');
const size = { width: 1280, height: 720 };
const maxBytes = 150_000;
const rows: [string, string, string][] = [
  ['Oslo', 'Norway', '709037'],
  ['Rome', 'Italy', '2748109'],
  ['Bonn', 'Germany', '321544'],
  ['Porto', 'Portugal', '231800'],
  ['Graz', 'Austria', '292630'],
  ['Ghent', 'Belgium', '262219'],
  ['Turku', 'Finland', '197900'],
  ['Lyon', 'France', '522250'],
];

/** Width and height, from the first chunk of a PNG. */
function sizeOf(png: Buffer): { width: number; height: number } {
  assert.equal(png.subarray(1, 4).toString(), 'PNG');
  return { width: png.readUInt32BE(16), height: png.readUInt32BE(20) };
}

describe('the pictures of the README', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  before(async () => {
    dashboard = await openDashboard();
  });
  after(() => dashboard?.close());

  test('show the records of a connection, in both schemes', async () => {
    const { trellis } = dashboard;
    const { headers, connectionId, integration } = await connect(trellis);
    const records = rows.map(([city, country, people], index) => ({ id: index + 1, city, country, people }));
    await trellis.call('POST', '/records', { headers, body: { model: 'City', records } });
    await trellis.call('POST', '/records', {
      headers,
      body: { model: 'City', records: [{ ...records[7], people: '520774' }] },
    });
    await trellis.call('POST', '/records/delete', { headers, body: { model: 'City', ids: [7] } });
    const listed = await trellis.call('GET', '/records?model=City&limit=2', { headers });
    await trellis.call('PATCH', '/records/prune', {
      headers,
      body: { model: 'City', until_cursor: listed.body.next_cursor },
    });

    const { page } = await dashboard.openAs('owner');
    await page.setViewportSize(size);
    await page.goto(`${trellis.baseUrl}/app/dev/records/of/${integration}/${connectionId}/City`);
    const readme = readFileSync(join(root, 'README.md'), 'utf8');
    for (const colorScheme of ['light', 'dark'] as const) {
      const file = `docs/images/dashboard-${colorScheme}.png`;
      assert.ok(readme.includes(`"${file}"`), `README.md shows ${file}`);
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await page.getByText('Oslo').or(page.getByText('Bonn')).first().waitFor();
      await page.locator(`html[data-mantine-color-scheme=${colorScheme}]`).waitFor();
      const taken = await page.screenshot();
      if (process.env.PICTURES === 'readme') {
        await mkdir(dirname(join(root, file)), { recursive: true });
        await writeFile(join(root, file), taken);
      }
      const kept = readFileSync(join(root, file));
      assert.deepEqual(sizeOf(kept), sizeOf(taken));
      assert.deepEqual(sizeOf(kept), size);
      assert.ok(kept.length < maxBytes, `${file} has ${kept.length} bytes`);
    }
  });
});
