// Defines the names that the JavaScript of the pages uses without an import.

import { readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { Webhook } from 'standardwebhooks';
import { Trellis } from '../../sdk/client/index.ts';

// Resolves @trellis-run/client as if it were installed.
const client = new URL('../../sdk/client/index.ts', import.meta.url).href;
registerHooks({
  resolve: (specifier, context, next) =>
    specifier === '@trellis-run/client' ? { url: client, shortCircuit: true } : next(specifier, context),
});

const {
  TRELLIS_SECRET_KEY = '',
  TRELLIS_URL = '',
  SHEET,
  CONN = '',
  TICKET: ticket,
  TOKEN: token,
} = process.env;
const signingKey = `whsec_${Buffer.alloc(24, 1).toString('base64')}`;
const rawBody = '{"id":"1"}';
const at = new Date();
const signed = {
  'webhook-id': '1',
  'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
  'webhook-signature': new Webhook(signingKey).sign('1', at, rawBody),
};
const trellis = new Trellis({ url: TRELLIS_URL, key: TRELLIS_SECRET_KEY });
const sheet = trellis.connection('google-sheet', CONN);

process.env.TRELLIS_SIGNING_KEY = signingKey;
Object.assign(globalThis, {
  TRELLIS_SECRET_KEY,
  TRELLIS_URL,
  SHEET,
  CONN,
  ticket,
  token,
  signingKey,
  rawBody,
  trellis,
  sheet,
  cities: sheet.records('City'),
  headers: { 'Connection-Id': CONN, 'Provider-Config-Key': 'google-sheet' },
  request: { headers: signed },
});

// These modules load slowly, and few pages need them.
const page = readFileSync('page.mjs', 'utf8');
if (/\b(oauth|sheetsApi)\b/.test(page)) {
  const { auth, sheets: sheetsApi } = await import('@googleapis/sheets');
  const oauth = new auth.OAuth2();
  oauth.setCredentials({ access_token: TRELLIS_SECRET_KEY });
  Object.assign(globalThis, { oauth, sheetsApi });
}
if (/\bGoogleSpreadsheet\b/.test(page)) Object.assign(globalThis, await import('google-spreadsheet'));
