// The application of the examples, started as its README says, and the browsers of people who use it.

import assert from 'node:assert/strict';
import type { BrowserContext, Page } from 'playwright-core';
import { openBrowser, prepare } from '../support/browser.ts';
import { consent, popupBy } from '../support/connect-pages.ts';
import type { Newcomer } from './newcomer.ts';
import { readmeOf, type Terminal } from './terminal.ts';

type Listed = { connection_id: string; tags: Record<string, string>; metadata: object };
/** What a test brings about on purpose. */
const expected = /409 \(Conflict\)|401 \(Unauthorized\)|503 \(Service|ERR_CONNECTION_REFUSED/;
const cookieSecret = 'of the test alone, and long enough';

export type Application = Awaited<ReturnType<typeof openApplication>>;

export async function openApplication(newcomer: Newcomer) {
  const browser = await openBrowser();
  const complaints: string[] = [];
  const [, , start = ''] = readmeOf('app').commands;
  let terminal: Terminal | undefined;
  let url = '';

  return {
    url: () => url,
    terminal: () => terminal!,
    /** The command that starts it once it is installed; `key` in place of the one of a development. */
    again(key?: string): string {
      const last = start.split('\n').at(-2)!;
      return `cd examples/app\n${key === undefined ? last : last.replace(/\$\(.*\)/, `'${key}'`)}`;
    },
    /** By the commands of the README unless others are given; again at the same port. */
    async start(env: Record<string, string> = {}, commands = start): Promise<void> {
      const port = url === '' ? '0' : new URL(url).port;
      terminal = newcomer.type(commands, { PORT: port, COOKIE_SECRET: cookieSecret, ...env });
      [, url = ''] = await terminal.printed(/^ready (\S+)$/m);
    },
    /** A browser of somebody else. */
    async open(): Promise<BrowserContext> {
      const opened = await browser.newContext({ reducedMotion: 'reduce' });
      await prepare(opened);
      opened.on('page', (one) => {
        one.on('pageerror', ({ message }) => complaints.push(`${one.url()}: ${message}`));
        one.on('console', (line) => {
          if (line.type() === 'error' || line.type() === 'warning') complaints.push(line.text());
        });
      });
      return opened;
    },
    async signIn(who: Page, name: string): Promise<void> {
      await who.goto(url);
      await who.getByLabel('Name').fill(name);
      await who.getByRole('button', { name: 'Sign in' }).click();
      await who.getByRole('button', { name: 'Sign out' }).waitFor();
    },
    /** The window in which somebody connects an account, before they are asked for anything. */
    openWindow(page: Page): Promise<Page> {
      const connect = page.getByRole('button', { name: 'Connect a sheet', exact: true });
      return popupBy(page.context(), () => connect.click());
    },
    /** Goes through that window to its end. */
    async chooseSheet(popup: Page, spreadsheetId: string): Promise<void> {
      await popup.getByRole('button', { name: /^Continue to/ }).click();
      await consent(popup);
      const link = `https://docs.google.com/spreadsheets/d/${spreadsheetId}/edit`;
      await popup.getByLabel('Link of the spreadsheet').fill(link);
      await popup.getByRole('button', { name: 'Open the spreadsheet' }).click();
      const closed = popup.waitForEvent('close');
      await popup.getByRole('button', { name: 'Use this sheet' }).click();
      await closed;
    },
    /** Those of the application, the newest first. */
    async connections(): Promise<Listed[]> {
      const { connections: all } = (await newcomer.service.call('GET', '/connections')) as {
        connections: Listed[];
      };
      return all.filter(({ tags }) => tags.app === 'sheetside');
    },
    /** Fails where a page complained on its console. */
    async close(): Promise<void> {
      await browser.close();
      assert.deepEqual(
        complaints.filter((text) => !expected.test(text)),
        [],
      );
    },
  };
}
