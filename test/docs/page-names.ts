// What the pages' JavaScript speaks of without saying where it comes from, by the names that it has there.

import { auth, sheets as sheetsApi } from '@googleapis/sheets';
import { GoogleSpreadsheet } from 'google-spreadsheet';
import { Webhook } from 'standardwebhooks';

const { KEY = '', BASE, SHEET, CONN = '', TICKET: ticket, TOKEN: token } = process.env;
const oauth = new auth.OAuth2();
oauth.setCredentials({ access_token: KEY });
const signingKey = `whsec_${Buffer.alloc(24, 1).toString('base64')}`;
const rawBody = '{"id":"1"}';
const at = new Date();
const signed = {
  'webhook-id': '1',
  'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
  'webhook-signature': new Webhook(signingKey).sign('1', at, rawBody),
};

Object.assign(globalThis, {
  ...{ KEY, BASE, SHEET, CONN, ticket, token, oauth, sheetsApi, GoogleSpreadsheet, signingKey, rawBody },
  headers: { 'Connection-Id': CONN, 'Provider-Config-Key': 'google-sheet' },
  request: { headers: signed },
});
