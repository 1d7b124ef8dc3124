import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { after, before } from 'node:test';
import type { Browser, BrowserContext, BrowserContextOptions, Page } from 'playwright-core';

/** The first has no window at all, and a context of it takes an eighth of the time. */
const names = [
  'chromium-headless-shell',
  'chrome-headless-shell',
  'chromium',
  'chromium-browser',
  'google-chrome',
  'google-chrome-stable',
];

/** CHROMIUM_PATH, or the first of the usual names on the PATH. */
const executable = process.env.CHROMIUM_PATH || onPath(names);

function onPath(wanted: string[]): string | undefined {
  const directories = (process.env.PATH ?? '').split(delimiter).filter((directory) => directory !== '');
  return directories.flatMap((directory) => wanted.map((name) => join(directory, name))).find(existsSync);
}

/** Why browser tests are left out; false where there is a browser, or where its absence must fail (in CI). */
export const skipBrowser =
  executable === undefined && process.env.CI === undefined
    ? 'there is no Chromium: see CHROMIUM_PATH'
    : false;

/** A browser with nothing in it that another one left. */
export type TestBrowser = {
  newContext(options?: BrowserContextOptions): Promise<BrowserContext>;
  /** In a context of its own. */
  newPage(options?: BrowserContextOptions): Promise<Page>;
  close(): Promise<void>;
};

/** The Chromium of this process, while somebody has it open. */
let running: Promise<Browser> | undefined;
let holders = 0;

/**
 * A real Chromium that connects only to this machine. All holders in the same test process share its processes and its
 * clipboard, and see none of the others' windows, cookies and files.
 */
export async function openBrowser(): Promise<TestBrowser> {
  holders += 1;
  running ??= launch();
  const browser = await running;
  const contexts: BrowserContext[] = [];
  const newContext: TestBrowser['newContext'] = async (options) => {
    const context = await browser.newContext(options);
    contexts.push(context);
    return context;
  };
  return {
    newContext,
    newPage: async (options) => (await newContext(options)).newPage(),
    async close() {
      for (const context of contexts) await context.close();
      holders -= 1;
      if (holders > 0) return;
      running = undefined;
      await browser.close();
    },
  };
}

/** For files that share a process: one Chromium for all of them. */
export function keepBrowser(): void {
  let browser: TestBrowser | undefined;
  before(async () => {
    if (skipBrowser === false) browser = await openBrowser();
  });
  after(() => browser?.close());
}

/**
 * Waits until an expression is true in the page. A policy of the page without `unsafe-eval` refuses Playwright's
 * `waitForFunction` from its second evaluation on, so the loop is part of the evaluated code.
 */
export async function waitUntilTrue(page: Page, expression: string, timeoutMs = 60_000): Promise<void> {
  const isTrue = await page.evaluate<boolean>(`new Promise((resolve) => {
    const end = performance.now() + ${timeoutMs};
    const look = () => {
      const isTrue = Boolean(${expression});
      if (isTrue || performance.now() > end) resolve(isTrue);
      else setTimeout(look, 50);
    };
    look();
  })`);
  assert.ok(isTrue, `within ${timeoutMs} ms: ${expression}`);
}

async function launch(): Promise<Browser> {
  if (executable === undefined)
    throw new Error('Install Chromium (Debian: apt-get install chromium), or name it in CHROMIUM_PATH.');
  // Each test process imports this file, and few open a browser: the library takes half a second to load.
  const { chromium } = await import('playwright-core');
  return chromium.launch({
    executablePath: executable,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
}

/**
 * What a page of this context does every few seconds it does five times as often, so that no test waits for it. A slow
 * machine is given time.
 */
export async function prepare(context: BrowserContext): Promise<void> {
  context.setDefaultTimeout(60_000);
  await context.addInitScript(`{
    const every = window.setInterval;
    window.setInterval = (run, ms, ...given) => every(run, ms < 2_000 ? ms : ms / 5, ...given);
  }`);
}
