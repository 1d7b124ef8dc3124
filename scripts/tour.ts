/**
 * `npm run tour`: runs the main use case once through the public API, and prints the result of each step and
 * its duration. It starts everything on a temporary data dir and stops it again. Exits non-zero if a step does not
 * return the expected result. `node scripts/tour.ts /opt/trellis/bin/trellis` uses that program instead of this clone's.
 */
import assert from 'node:assert/strict';
import { auth as googleAuth, sheets as sheetsApi } from '@googleapis/sheets';
import { postcodesCsv } from '../test/support/postcodes.ts';
import { type RunningService, startRunningService } from '../test/support/service.ts';

/** Empty: the program of this clone. */
const program = process.argv.slice(2);
const rowCount = 3376;

type Json = Record<string, unknown>;
type Metadata = { cursor: string; pruned_at: string | null; last_action: string };
type TourRecord = { id: string; _trellis_metadata: Metadata } & Json;
type Page = { records: TourRecord[]; next_cursor: string | null };

let stepNumber = 0;

/** Runs a step and prints its result and duration. */
async function step<T>(title: string, run: () => Promise<{ came: string; value: T }>): Promise<T> {
  stepNumber += 1;
  const begun = performance.now();
  try {
    const { came, value } = await run();
    const ms = Math.round(performance.now() - begun);
    console.log(`${String(stepNumber).padStart(2)}. ${title}\n    ${came}  (${ms} ms)`);
    return value;
  } catch (error) {
    console.log(`${String(stepNumber).padStart(2)}. ${title}\n    NOT AS PROMISED`);
    throw error;
  }
}

async function tour(): Promise<void> {
  const service = await step('Start the service on an empty data dir', async () => {
    const started = await startRunningService(program.length > 0 ? { program } : {});
    return { came: `ready ${started.baseUrl}, sandbox ${started.sandboxUrl}`, value: started };
  });
  try {
    await mainJob(service);
  } finally {
    await step('Stop it', async () => {
      const code = await service.stop();
      assert.equal(code, 0, 'the service ends cleanly on SIGTERM');
      return { came: `exit code ${code}`, value: undefined };
    });
  }
}

async function mainJob(service: RunningService): Promise<void> {
  const { call, sandbox, baseUrl, secretKey } = service;
  const integration = 'google-sheet';

  await step('Create an integration with test credentials', async () => {
    const { data } = (await call('POST', '/integrations', {
      body: { provider: 'google-sheet', integration_id: integration, credentials: { type: 'TEST' } },
    })) as { data: Json };
    assert.equal(data.test, true);
    return { came: `${data.unique_key} of ${data.provider}, test: ${data.test}`, value: data };
  });

  const spreadsheetId = await step('Load a spreadsheet into the sandbox', async () => {
    const account = 'ada@example.com';
    const { spreadsheetId } = (await sandbox('POST', 'spreadsheets', {
      account,
      title: 'Postcodes',
      sheet: 'postcodes',
      csv: postcodesCsv(rowCount),
    })) as { spreadsheetId: string };
    return { came: `Postcodes is ${spreadsheetId} of ${account}`, value: spreadsheetId };
  });

  const session = await step('Open a connect session for an end user', async () => {
    const { data } = (await call('POST', '/connect/sessions', {
      body: { end_user: { id: 'ada', email: 'ada@example.com' }, allowed_integrations: [integration] },
    })) as { data: { token: string; connect_link: string; expires_at: string } };
    return { came: `valid until ${data.expires_at}`, value: data };
  });

  const connectionId = await step('Consent at the provider and come back', async () => {
    const begun = await fetch(
      `${baseUrl}/oauth/connect/${integration}?connect_session_token=${session.token}`,
      {
        redirect: 'manual',
      },
    );
    const cookie = begun.headers
      .getSetCookie()
      .map((line) => line.split(';', 1)[0])
      .join('; ');
    const { redirect } = (await sandbox('POST', 'authorize', {
      url: begun.headers.get('location'),
      account: 'ada@example.com',
    })) as { redirect: string };
    const landed = await fetch(redirect, { headers: { cookie }, redirect: 'manual' });
    assert.equal(landed.status, 200, await landed.text());
    const { connections } = (await call('GET', '/connections')) as { connections: Json[] };
    assert.equal(connections.length, 1);
    const [connection] = connections;
    const account = connection?.account as { email: string };
    return {
      came: `connection ${connection?.connection_id} of ${account.email}`,
      value: String(connection?.connection_id),
    };
  });
  const at = { 'connection-id': connectionId, 'integration-id': integration };

  await step('Read the spreadsheet through the proxy', async () => {
    const sheet = (await call('GET', `/proxy/v4/spreadsheets/${spreadsheetId}`, { headers: at })) as {
      properties: { title: string };
      sheets: { properties: { title: string; gridProperties: { rowCount: number } } }[];
    };
    assert.equal(sheet.properties.title, 'Postcodes');
    const { title, gridProperties } = sheet.sheets[0]!.properties;
    return {
      came: `"${sheet.properties.title}", tab ${title}, ${gridProperties.rowCount} rows`,
      value: sheet,
    };
  });

  const rows = await step("Read its values with Google's own client", async () => {
    const auth = new googleAuth.OAuth2();
    auth.setCredentials({ access_token: secretKey });
    const sheets = sheetsApi({ version: 'v4', auth, headers: at });
    const { data } = await sheets.spreadsheets.values.get(
      { spreadsheetId, range: 'postcodes' },
      { rootUrl: `${baseUrl}/proxy/` },
    );
    const [header, ...values] = data.values as string[][];
    assert.equal(values.length, rowCount);
    return {
      came: `${values.length} rows of ${header?.join(', ')}`,
      value: values.map((row) =>
        Object.fromEntries(header!.map((name, index) => [name, row[index] ?? null])),
      ),
    };
  });

  const model = 'Postcode';
  const records = rows.map((row) => ({ ...row, id: String(row.zip_code) }));
  const save = () => saveAll({ call, at, model, records });
  await step('Save them as records', async () => {
    const counts = await save();
    assert.deepEqual(counts, { added: rowCount, updated: 0, unchanged: 0, restored: 0 });
    return { came: JSON.stringify(counts), value: counts };
  });

  const listed = await step('List them by cursor', async () => {
    const all = await listAll({ call, at, model });
    assert.equal(all.length, rowCount);
    assert.equal(new Set(all.map(({ id }) => id)).size, rowCount);
    return { came: `${all.length} records, the first ${all[0]?.id}, the last ${all.at(-1)?.id}`, value: all };
  });

  const middle = 2_100;
  const untilCursor = listed[middle - 1]!._trellis_metadata.cursor;
  await step(`Prune the first ${middle}, 1000 at a time`, async () => {
    const counts: number[] = [];
    for (let hasMore = true; hasMore; ) {
      const answer = (await call('PATCH', '/records/prune', {
        headers: at,
        body: { model, until_cursor: untilCursor, limit: 1000 },
      })) as { count: number; has_more: boolean };
      counts.push(answer.count);
      hasMore = answer.has_more;
    }
    assert.deepEqual(counts, [1000, 1000, 100]);
    return { came: `${counts.join(' + ')}, then has_more: false`, value: counts };
  });

  await step('Payloads up to the cursor are deleted, metadata is kept', async () => {
    const all = await listAll({ call, at, model });
    const pruned = all.slice(0, middle);
    for (const record of pruned) {
      assert.deepEqual(Object.keys(record).sort(), ['_trellis_metadata', 'id']);
      assert.notEqual(record._trellis_metadata.pruned_at, null);
    }
    for (const record of all.slice(middle)) assert.equal(typeof record.city, 'string');
    assert.deepEqual(all.map(cursorOf), listed.map(cursorOf), 'no cursor has moved');
    return {
      came: `${pruned.length} pruned, ${all.length - pruned.length} whole, no cursor moved`,
      value: all,
    };
  });

  await step('Sync again: the pruned payloads are restored', async () => {
    const counts = await save();
    assert.deepEqual(counts, { added: 0, updated: 0, unchanged: rowCount, restored: middle });
    const all = await listAll({ call, at, model });
    assert.deepEqual(all.map(withoutPrunedAt), listed.map(withoutPrunedAt));
    return { came: `${JSON.stringify(counts)}, every record as it was`, value: counts };
  });
}

type Call = RunningService['call'];
type Place = { call: Call; at: Record<string, string>; model: string };

async function saveAll({
  call,
  at,
  model,
  records,
}: Place & { records: Json[] }): Promise<Record<string, number>> {
  const total = { added: 0, updated: 0, unchanged: 0, restored: 0 };
  for (let from = 0; from < records.length; from += 1000) {
    const { counts } = (await call('POST', '/records', {
      headers: at,
      body: { model, records: records.slice(from, from + 1000) },
    })) as { counts: typeof total };
    for (const name of Object.keys(total) as (keyof typeof total)[]) total[name] += counts[name];
  }
  return total;
}

async function listAll({ call, at, model }: Place): Promise<TourRecord[]> {
  const all: TourRecord[] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const query = new URLSearchParams({ model, limit: '500', ...(cursor && { cursor }) });
    const page = (await call('GET', `/records?${query}`, { headers: at })) as Page;
    all.push(...page.records);
    cursor = page.next_cursor;
  }
  return all;
}

function cursorOf(record: TourRecord): string {
  return record._trellis_metadata.cursor;
}

function withoutPrunedAt(record: TourRecord): Json {
  const { pruned_at: _, ...metadata } = record._trellis_metadata;
  return { ...record, _trellis_metadata: metadata };
}

const begun = performance.now();
try {
  await tour();
  console.log(`\nAll as promised, in ${((performance.now() - begun) / 1000).toFixed(1)} s.`);
} catch (error) {
  console.error(error);
  process.exitCode = 1;
}
