// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { startAssertions } from '../../sandbox/profiles/assertions.ts';
import { catalogAt } from '../support/assertion-catalog.ts';
import { skipBrowser } from '../support/browser.ts';
import { openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';

describe('the connect page of a private key', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let provider: Awaited<ReturnType<typeof startAssertions>>;
  before(async () => {
    provider = await startAssertions({ now: () => new Date() });
    dashboard = await openDashboard(
      { TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8' },
      { catalog: await catalogAt(provider.origin) },
    );
    const { status, text } = await dashboard.trellis.call('POST', '/integrations', {
      body: { provider: 'app-store-connect', unique_key: 'apple' },
    });
    assert.equal(status, 200, text);
  });
  after(async () => {
    await dashboard?.close();
    await provider?.stop();
  });

  test('has a field of several lines, says that a key does not fit, and connects', async () => {
    dashboard.expectComplaint(/400/);
    const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
    const pem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
    const issuer = '57246542-96fe-1a63-e053-0824d011072a';
    provider.assertions.keys.push({ provider: 'apple', issuer, keyId: '2X9R4HXF34', key: publicKey });
    const { body } = await dashboard.trellis.call('POST', '/connect/sessions', {
      body: { end_user: { id: 'ada' }, allowed_integrations: ['apple'] },
    });
    const { page } = await dashboard.openAsNobody();
    await page.goto((body.data as { connect_link: string }).connect_link);
    const key = page.getByRole('textbox', { name: 'Private key' });
    await page.getByRole('textbox', { name: 'Issuer ID' }).fill(issuer);
    await page.getByRole('textbox', { name: 'Key ID' }).fill('2X9R4HXF34');
    // Without its last line, whatever the key: the rest of a line in between may look like a key of another kind.
    await key.fill(pem.replace(/.*\n(-----END)/, '$1'));
    const connect = page.getByRole('button', { name: 'Connect', exact: true });
    await connect.click();
    await page.getByText('This value is not valid: is damaged or incomplete').waitFor();
    await picture(page, 'connect-private-key');
    await key.fill(pem);
    assert.equal(await key.inputValue(), pem);
    await connect.click();
    await page.getByRole('heading', { name: 'App Store Connect is connected' }).waitFor();
  });
});
