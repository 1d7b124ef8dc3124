/** Starts the application: `npm start`. README.md describes the settings. */
import { randomBytes } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { Trellis } from '@trellis-run/client';
import { createLive } from './live.ts';
import { createServer } from './server.ts';
import { createSheets } from './sheets.ts';
import { openStore } from './store.ts';

const {
  TRELLIS_URL: trellisUrl = 'http://localhost:3003',
  TRELLIS_SECRET_KEY = '',
  PORT = '3010',
} = process.env;
const { DATA_DIR = './data', COOKIE_SECRET: cookieSecret = randomBytes(32).toString('hex') } = process.env;

const trellis = new Trellis({ url: trellisUrl, key: TRELLIS_SECRET_KEY });
mkdirSync(DATA_DIR, { recursive: true });
const store = openStore(join(DATA_DIR, 'app.sqlite'));
const live = createLive();
const sheets = createSheets({ trellis, store, live });
const signingKey = process.env.TRELLIS_SIGNING_KEY ?? (await askSigningKey());
const app = await createServer({ sheets, store, live, trellisUrl, cookieSecret, signingKey });

await app.listen({ port: Number(PORT), host: 'localhost' });
const { port } = app.server.address() as AddressInfo;
// The address of this application for Trellis; an IP address, as in TRELLIS_OUTBOUND_ALLOW.
const { EVENTS_URL = `http://127.0.0.1:${port}/trellis/events` } = process.env;
await sheets.prepare(EVENTS_URL);
console.log(`ready http://localhost:${port}`);

for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, async () => {
    live.close();
    sheets.close();
    await app.close();
    store.close();
  });

/** The request needs a key that can also create keys, which is acceptable for an example. */
async function askSigningKey(): Promise<string> {
  const { data } = await trellis.request('GET /environment/webhook-signing-key');
  return data.webhook_signing_key;
}
