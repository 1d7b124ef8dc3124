import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { type Browser, type BrowserContext, chromium } from 'playwright-core';

const names = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];

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

/** A real Chromium that talks to nobody but this machine. */
export function openBrowser(): Promise<Browser> {
  if (executable === undefined)
    throw new Error('Install Chromium (Debian: apt-get install chromium), or name it in CHROMIUM_PATH.');
  return chromium.launch({
    executablePath: executable,
    args: [
      ...['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
      ...['--disable-background-networking', '--disable-component-update', '--disable-sync'],
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
