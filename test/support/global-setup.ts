import { globSync } from 'node:fs';
import { skipBrowser } from './browser.ts';
import { handOver, startTestServer } from './database.ts';

let stop: (() => Promise<void>) | undefined;

/** Run once by `node --test --test-global-setup=...` before the first test file. */
export async function globalSetup(): Promise<void> {
  const started = await startTestServer();
  stop = started.stop;
  handOver(started.server);
}

/** Run once after the last test file. */
export async function globalTeardown(): Promise<void> {
  await stop?.();
  // As the last lines, behind what the reporter says.
  if (skipBrowser !== false) process.once('exit', tellSkipped);
}

function tellSkipped(): void {
  const files = globSync('test/browser/*.test.ts').sort();
  console.log(`\nNot run, since ${skipBrowser}:\n${files.map((file) => `  ${file}`).join('\n')}`);
}
