import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { BrowserContext, Page } from 'playwright-core';
import { providersDirectory } from '../../server/app/app.ts';
import { authModes } from '../../server/auth-modes/modes.ts';
import { loadCatalog } from '../../server/providers/catalog.ts';
import { openDashboard, type TestDashboard } from './dashboard.ts';

/** A provider with user name and password whose address each connection brings. */
const ownHost = `
display_name: Own Host
categories: [other]
docs: https://example.com
logo: private-api-key.svg
auth_mode: BASIC
connection_config:
  base_url:
    title: Address
    description: Where your server is.
    format: uri
    example: https://erp.example.com
  region:
    title: Region
    description: Only for servers in more than one.
    required: false
api:
  base_url: \${connectionConfig.base_url}
`;

export type TestConnectPages = TestDashboard & {
  /** The link and the token of a new session. */
  link(body?: Record<string, unknown>): Promise<{ url: string; token: string }>;
  /** A link that renews a connection of the integration `google-sheet`. */
  reconnectLink(connectionId: string, more?: Record<string, unknown>): Promise<string>;
  connections(): Promise<{ connection_id: string; health: { missing_scopes: string[] } }[]>;
};

/** A service with integrations of each kind, and a browser for its connect page. */
export async function openConnectPages(env: Record<string, string> = {}): Promise<TestConnectPages> {
  const definitions = await mkdtemp(join(tmpdir(), 'trellis-connect-pages-'));
  await cp(providersDirectory, definitions, { recursive: true });
  await writeFile(join(definitions, 'own-host.yaml'), ownHost);
  const catalog = loadCatalog(definitions, authModes);
  await rm(definitions, { recursive: true });
  // The private APIs are on this machine.
  const reach = { TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8,::1/128' };
  const dashboard = await openDashboard({ ...reach, ...env }, { catalog });
  const { trellis } = dashboard;
  await trellis.call('POST', '/integrations/quickstart', {
    body: { provider: 'google-sheet', unique_key: 'google-sheet' },
  });
  for (const [unique_key, provider, integration_config] of [
    ['key', 'private-api-key', { base_url: trellis.sandbox.url }],
    ['own', 'own-host', {}],
    [
      'machine',
      'private-client-credentials',
      {
        base_url: trellis.sandbox.url,
        token_url: `${trellis.sandbox.url}/token`,
        scope: 'https://www.googleapis.com/auth/spreadsheets',
      },
    ],
    ['open', 'unauthenticated', { base_url: trellis.sandbox.url }],
  ] as const) {
    const made = await trellis.call('POST', '/integrations', {
      body: { provider, unique_key, integration_config },
    });
    if (made.status !== 200) throw new Error(made.text);
  }
  return {
    ...dashboard,
    async link(body = { end_user: { id: 'ada', email: 'ada@example.com', display_name: 'Ada Lovelace' } }) {
      const { body: answer, status, text } = await trellis.call('POST', '/connect/sessions', { body });
      if (status !== 201) throw new Error(text);
      const { token, connect_link: url } = answer.data as { token: string; connect_link: string };
      return { url, token };
    },
    async reconnectLink(connectionId, more = {}) {
      const body = { integration_id: 'google-sheet', connection_id: connectionId, ...more };
      const {
        body: answer,
        status,
        text,
      } = await trellis.call('POST', '/connect/sessions/reconnect', { body });
      if (status !== 201) throw new Error(text);
      return (answer.data as { connect_link: string }).connect_link;
    },
    async connections() {
      const { body } = await trellis.call('GET', '/connections');
      return body.connections as { connection_id: string; health: { missing_scopes: string[] } }[];
    },
  };
}

/** At the provider: chooses the account, where it is asked for, and agrees, with the boxes as they are unless they are to be emptied. */
export async function consent(
  page: Page,
  { account = 'ada@example.com', untick = false }: { account?: string; untick?: boolean } = {},
): Promise<void> {
  const agree = page.getByRole('button', { name: /continue|allow/i });
  const choose = page.getByText(account).first();
  await choose.or(agree).first().waitFor();
  if (account !== 'ada@example.com') {
    await page.getByRole('link', { name: /another account/ }).click();
    await page.getByText(account).first().click();
  } else if (!(await agree.isVisible())) await choose.click();
  await agree.waitFor();
  if (untick) for (const box of await page.getByRole('checkbox').all()) await box.uncheck();
  await agree.click();
}

/** At the provider: chooses the account and says no. */
export async function deny(page: Page): Promise<void> {
  await page.getByText('ada@example.com').first().click();
  await page.getByRole('button', { name: /cancel|deny/i }).click();
}

/** Clicks, and gives the window that opens. */
export async function popupBy(context: BrowserContext, click: () => Promise<void>): Promise<Page> {
  const [popup] = await Promise.all([context.waitForEvent('page'), click()]);
  return popup;
}

/**
 * Closes a window that may be navigating. Chromium can drop a close during the commit of a navigation (crbug.com/536385539),
 * and `page.close()` then never returns.
 */
export async function closeWindow(popup: Page): Promise<void> {
  while (!popup.isClosed()) {
    await popup.close({ runBeforeUnload: true });
    await popup.waitForEvent('close', { timeout: 500 }).catch(() => {});
  }
}
