import { existsSync } from 'node:fs';
import { type Browser, chromium } from 'playwright-core';

/** Where Debian and others put it. */
const executable = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((path) =>
  existsSync(path),
);

/** Why browser tests are left out; false where there is a browser, or where its absence must fail (in CI). */
export const skipBrowser =
  executable === undefined && process.env.CI === undefined ? 'no chromium here' : false;

/** A real Chromium that talks to nobody but this machine. */
export function openBrowser(): Promise<Browser> {
  if (executable === undefined) throw new Error('install chromium (Debian: apt-get install chromium)');
  return chromium.launch({
    executablePath: executable,
    args: [
      ...['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
      ...['--disable-background-networking', '--disable-component-update', '--disable-sync'],
    ],
  });
}
