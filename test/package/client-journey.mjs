// What a program does with the installed client, on whatever platform runs it. Ends with the line `all as promised`.

import { isTrellisError, Trellis, verifyEvent } from '@trellis-run/client';

/** @param {{ url: string, key: string, integration: string, connection: string, sheet: string, model: string }} world */
export async function journey({ url, key, integration, connection: id, sheet, model }) {
  const check = (isSo, what) => {
    if (!isSo) throw new Error(`${model}: ${what}`);
  };
  // In a browser a key of a test is given like this; a page of yours has a ticket.
  const trellis = new Trellis({ url, key: () => key });
  const connection = trellis.connection(integration, id);
  check(
    (await trellis.connections.list().toArray()).some((one) => one.connection_id === id),
    'connections',
  );

  const records = connection.records(model);
  const cities = Array.from({ length: 1_200 }, (_, at) => ({ id: at, city: `city ${at}` }));
  check((await records.save(cities)).counts.added === 1_200, 'save');
  check((await records.list({ pageSize: 500 }).toArray()).length === 1_200, 'list');
  let seen = 0;
  for await (const batch of records.follow({ consumer: 'one', batchSize: 500, untilCaughtUp: true }))
    seen += batch.records.length;
  check(seen === 1_200, 'follow');
  const told = [];
  const { count } = await records.pruneConsumed('one', { onProgress: (one) => told.push(one.pruned) });
  check(count === 1_200 && told.join() === '1000,1200', 'prune');
  let exported = 0;
  for await (const _ of records.export()) exported += 1;
  check(exported === 1_200, 'export');

  const answer = await connection.fetch(`/v4/spreadsheets/${sheet}/values/cities`);
  check((await answer.json()).values.length > 1, 'proxy');
  const range = `https://sheets.googleapis.com/v4/spreadsheets/${sheet}/values/cities:append?valueInputOption=RAW`;
  const appended = await connection.fetch(
    new Request(range, { method: 'POST', body: '{"values":[["8","Rome"]]}' }),
  );
  check(appended.status === 200, `append: ${appended.status}`);
  const nobody = trellis.connection(integration, 'nobody');
  check((await nobody.errorOf(await nobody.fetch('/x')))?.code === 'unknown_connection', 'errorOf');

  const failed = await trellis.connections.health(integration, 'nobody').catch((error) => error);
  check(isTrellisError(failed, 'not_found', 'unknown_connection'), 'errors');
  const away = new Trellis({ url: 'http://127.0.0.1:9', key: () => 'k', retries: 0 });
  check(isTrellisError(await away.variables.list().catch((error) => error), 'network_error'), 'network');
  const stop = AbortSignal.abort(new Error('stopped'));
  check(
    (await trellis.variables.list({ signal: stop }).catch((error) => error)).message === 'stopped',
    'abort',
  );

  const bytes = crypto.getRandomValues(new Uint8Array(32));
  const body = JSON.stringify({ id: 'e1', type: 'connection.created' });
  const timestamp = String(Math.floor(Date.now() / 1000));
  const algorithm = { name: 'HMAC', hash: 'SHA-256' };
  const hmac = await crypto.subtle.importKey('raw', bytes, algorithm, false, ['sign']);
  const signed = await crypto.subtle.sign('HMAC', hmac, new TextEncoder().encode(`e1.${timestamp}.${body}`));
  const base64 = (given) => btoa(String.fromCharCode(...new Uint8Array(given)));
  const headers = {
    'webhook-id': 'e1',
    'webhook-timestamp': timestamp,
    'webhook-signature': `v1,${base64(signed)}`,
  };
  check((await verifyEvent(body, headers, `whsec_${base64(bytes)}`)).id === 'e1', 'verifyEvent');
  const forged = await verifyEvent(`${body} `, headers, `whsec_${base64(bytes)}`).catch((error) => error);
  check(isTrellisError(forged, 'invalid_signature'), 'forged');
  return 'all as promised';
}
