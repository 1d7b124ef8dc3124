// Connects a user's account, calls Google's API with it, follows a sheet's rows as records, and prunes them.
import { Trellis } from '@trellis-run/client';

const { TRELLIS_URL: url = 'http://localhost:3003', TRELLIS_SECRET_KEY: key = '' } = process.env;
const trellis = new Trellis({ url, key });
const integration = 'google-sheet';

// The integration uses the sandbox's OAuth client. The function `rows` syncs rows to records.
await trellis.integrations.createTest({ provider: 'google-sheet', integration_id: integration });
const path = { key: integration, name: 'rows' };
await trellis.request('PUT /integrations/{key}/functions/{name}/shipped', { path, body: { type: 'sync' } });

const asked = { end_user: { id: `user-${Date.now()}` }, allowed_integrations: [integration] };
const { connect_link: link } = await trellis.connectSessions.create(asked);
console.log('open', link);
const connection = trellis.connection(integration, await connectedBy(asked.end_user.id));

// A call of Google's API with the user's credentials.
const { spreadsheetId } = await google('', { properties: { title: 'My cities' } });
const values = ['City,Country', 'Oslo,Norway', 'Rome,Italy'].map((line) => line.split(','));
await google(`/${spreadsheetId}/values/A1:append?valueInputOption=RAW`, { values });
console.log('read', (await google(`/${spreadsheetId}/values/A:B`)).values);

// Its rows as records, identified by the column City.
const base = { spreadsheetId, sheetId: 0, identity: 'key', keyColumn: 'City' };
await trellis.connections.metadata.set(integration, connection.id, { sheets: { base } });
await connection.syncs.trigger('rows');
const rows = connection.records('Row');
for await (const { records, acknowledge } of rows.follow({ consumer: 'example' })) {
  for (const { id, fields, _trellis_metadata: about } of records) console.log(about.last_action, id, fields);
  await acknowledge(); // The request for the next batch also acknowledges, but this loop ends here.
  console.log('pruned', (await rows.pruneConsumed('example')).count);
  break;
}

async function connectedBy(id) {
  for await (const { events } of trellis.events.follow({ types: ['connection.created'] }))
    for (const { data } of events) if (data.end_user?.id === id) return data.connection_id;
}

async function google(path, body) {
  const headers = { 'content-type': 'application/json' };
  const init = body && { method: 'POST', headers, body: JSON.stringify(body) };
  const answer = await connection.fetch(`/v4/spreadsheets${path}`, init);
  if (!answer.ok) throw (await connection.errorOf(answer)) ?? new Error(await answer.text());
  return answer.json();
}
