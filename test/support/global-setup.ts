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
}
