import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { createSheetsApi } from './api.ts';
import { createSpreadsheetStore } from './store.ts';
import { ann } from './testing.ts';

async function inDirectory(run: (dataDir: string) => Promise<void>): Promise<void> {
  const dataDir = await mkdtemp(join(tmpdir(), 'store-'));
  try {
    await run(dataDir);
  } finally {
    await rm(dataDir, { recursive: true });
  }
}

test('spreadsheets survive a restart', async () => {
  await inDirectory(async (dataDir) => {
    const open = () =>
      createSheetsApi({ dataDir: join(dataDir, 'sheets'), url: 'http://x', now: () => 1000 });
    const first = open();
    assert.deepEqual(await first.listSpreadsheets(), []);
    const { spreadsheetId } = await first.createSpreadsheet({
      account: ann,
      title: 'Kept',
      sheet: 'S',
      rows: [['a', 1, true, null, '']],
    });
    await first.close();
    assert.deepEqual(await readdir(join(dataDir, 'sheets')), [`${spreadsheetId}.json`]);
    const second = open();
    assert.deepEqual(await second.listSpreadsheets(), [
      {
        spreadsheetId,
        title: 'Kept',
        owner: ann,
        modifiedAt: 1000,
        version: 1,
        trashed: false,
        sheets: [{ title: 'S', rowCount: 1000, columnCount: 26 }],
      },
    ]);
    const answer = await second.handle({
      method: 'GET',
      rawUrl: `/v4/spreadsheets/${spreadsheetId}/values/S?valueRenderOption=UNFORMATTED_VALUE`,
      headers: {},
      body: Buffer.alloc(0),
      access: {
        ok: true,
        ...ann,
        clientId: 'c',
        scopes: new Set(['https://www.googleapis.com/auth/spreadsheets']),
      },
    });
    assert.deepEqual(JSON.parse(String(answer.body)).values, [['a', 1, true]]);
    await second.close();
  });
});

test('a file that cannot be read is an error, not an empty spreadsheet', async () => {
  await inDirectory(async (dataDir) => {
    await writeFile(join(dataDir, 'broken.json'), '{"spreadsheetId": ');
    const store = createSpreadsheetStore(dataDir);
    await assert.rejects(store.find('broken'), /spreadsheet broken cannot be read/);
    assert.equal(await store.find('../broken'), undefined);
    await store.close();
  });
});
