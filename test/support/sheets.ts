// Sheets of the sandbox that the functions which ship follow.

import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { providersDirectory } from '../../server/app/app.ts';
import { authModes } from '../../server/auth-modes/modes.ts';
import { type Catalog, loadCatalog } from '../../server/providers/catalog.ts';
import { type Answer, connect, type TestTrellis } from './trellis.ts';

type Cell = string | number | boolean | null;
export type Counts = { added: number; updated: number; deleted: number; unchanged: number };
export type RunSeen = {
  id: string;
  state: string;
  counts: Record<string, Counts>;
  error: { code: string; message: string } | null;
  /** Requests that the sandbox's API got meanwhile. */
  requests: number;
};
type SheetRecord = {
  id: string;
  fields: Record<string, unknown>;
  _trellis_metadata: { last_action: string; last_modified_at: string; cursor: string };
};

/** A connection with the functions that ship, and ways to do to its spreadsheets what people do. */
export type Sheets = Awaited<ReturnType<typeof openSheets>>;

const functions = {
  sync: ['rows', 'worksheets'],
  action: [
    'list-spreadsheets',
    'describe-spreadsheet',
    'preview-rows',
    'append-rows',
    'update-cells',
    'create-spreadsheet',
  ],
} as const;

export async function openSheets(
  trellis: TestTrellis,
  given: Parameters<typeof connect>[1] & { account?: string; scopes?: string[]; quota?: string } = {},
) {
  const { account = 'ada@example.com', integration: wanted = 'google-sheet', scopes, quota } = given;
  await trellis.control('POST', 'accounts', { email: account }).catch(() => {});
  const made = { provider: 'google-sheet', unique_key: wanted };
  await trellis.call('POST', '/integrations/quickstart', {
    body: { ...made, ...(quota !== undefined && { integration_config: { quota } }) },
  });
  if (scopes !== undefined) {
    const credentials = { type: 'TEST', scopes: ['openid', 'email', ...scopes].join(',') };
    const changed = await trellis.call('PATCH', `/integrations/${wanted}`, { body: { credentials } });
    assert.equal(changed.status, 200, changed.text);
  }
  const { connectionId, integration, headers } = await connect(trellis, { ...given, account });
  for (const [type, names] of Object.entries(functions)) {
    for (const name of names) {
      const path = `/integrations/${integration}/functions/${name}/shipped`;
      const put = await trellis.call('PUT', path, { body: { type } });
      assert.equal(put.status, 200, put.text);
    }
  }
  const place = { provider_config_key: integration, connection_id: connectionId };
  // Nothing runs by itself: what a test counts is its own.
  const paused = await trellis.call('POST', '/sync/pause', { body: { ...place, syncs: [] } });
  assert.equal(paused.status, 200, paused.text);

  const asked = async (): Promise<number> => {
    const counts = await trellis.control('GET', 'calls');
    return Object.entries(counts)
      .filter(([route]) => /\/v4\/|\/drive\//.test(route))
      .reduce((sum, [, count]) => sum + Number(count), 0);
  };

  async function settled(id: string): Promise<RunSeen> {
    for (let left = 1_500; left > 0; left--) {
      const { body } = await trellis.call('GET', `/functions/runs/${id}`);
      const run = body as unknown as RunSeen;
      if (!['waiting', 'running'].includes(run.state)) return run;
      await pause(20);
    }
    throw new Error(`the run ${id} does not end`);
  }

  const newest = async (name: string): Promise<RunSeen | undefined> => {
    const query = `function=${name}&connection_id=${connectionId}&provider_config_key=${integration}&limit=1`;
    return ((await trellis.call('GET', `/functions/runs?${query}`)).body.runs as RunSeen[])[0];
  };

  // What began by itself before the pause is over before anything is counted.
  for (const name of functions.sync) {
    const begun = await newest(name);
    if (begun !== undefined) await settled(begun.id);
  }

  /** Runs a sync now, and answers what came of it. */
  async function run(name = 'rows', variant = 'base'): Promise<RunSeen> {
    const last = await newest(name);
    if (last !== undefined) await settled(last.id);
    const before = await asked();
    const syncs = [variant === 'base' ? name : `${name}::${variant}`];
    const triggered = await trellis.call('POST', '/sync/trigger', { body: { ...place, syncs } });
    assert.equal(triggered.status, 200, triggered.text);
    for (;;) {
      const run = await newest(name);
      if (run !== undefined && run.id !== last?.id) {
        return { ...(await settled(run.id)), requests: (await asked()) - before };
      }
      await pause(10);
    }
  }

  const api = (method: string, path: string, body?: unknown): Promise<Answer> =>
    trellis.call(method, `/proxy/v4/spreadsheets${path}`, {
      headers,
      ...(body !== undefined && { body }),
    });

  return {
    trellis,
    connectionId,
    integration,
    headers,
    place,
    run,
    settled,
    asked,
    api,
    /** A spreadsheet of the account with one tab, whose gid is 0. */
    async make(rows: Cell[][], { sheet = 'Sheet1' } = {}): Promise<string> {
      const made = await trellis.control('POST', 'spreadsheets', { account, title: 'Book', sheet, rows });
      return String(made.spreadsheetId);
    },
    async edit(spreadsheetId: string, ...requests: object[]): Promise<Record<string, unknown>[]> {
      const answer = await api('POST', `/${spreadsheetId}:batchUpdate`, { requests });
      assert.equal(answer.status, 200, answer.text);
      return answer.body.replies as Record<string, unknown>[];
    },
    async put(
      spreadsheetId: string,
      { range, values, input = 'RAW' }: { range: string; values: Cell[][]; input?: string },
    ): Promise<void> {
      const path = `/${spreadsheetId}/values/${encodeURIComponent(range)}?valueInputOption=${input}`;
      const answer = await api('PUT', path, { values });
      assert.equal(answer.status, 200, answer.text);
    },
    /** The values of the API, unformatted. */
    async values(spreadsheetId: string, range: string): Promise<Cell[][]> {
      const path = `/${spreadsheetId}/values/${encodeURIComponent(range)}`;
      const answer = await api('GET', `${path}?valueRenderOption=UNFORMATTED_VALUE`);
      return (answer.body.values ?? []) as Cell[][];
    },
    /** Sets all of them up; further variants are made. */
    async choose(sheets: Record<string, object>): Promise<void> {
      const body = { ...place, metadata: { sheets } };
      const answer = await trellis.call('POST', '/connections/metadata', { body });
      assert.equal(answer.status, 201, answer.text);
      for (const variant of Object.keys(sheets).filter((name) => name !== 'base')) {
        const made = await trellis.call('POST', `/sync/rows/variant/${variant}`, { body: place });
        assert.ok([200, 409].includes(made.status), made.text);
        await trellis.call('POST', '/sync/pause', { body: { ...place, syncs: [`rows::${variant}`] } });
      }
    },
    /** Runs the sync from nothing, without its records: what is chosen by then is new. */
    async empty(): Promise<void> {
      const chosen = await trellis.call(
        'GET',
        `/connections/${connectionId}?provider_config_key=${integration}`,
      );
      const { metadata } = chosen.body as { metadata: object };
      await trellis.call('POST', '/connections/metadata', { body: { ...place, metadata: {} } });
      const last = await newest('rows');
      const opts = { reset: true, emptyCache: true };
      await trellis.call('POST', '/sync/trigger', { body: { ...place, syncs: ['rows'], opts } });
      for (
        let run = await newest('rows');
        run === undefined || run.id === last?.id;
        run = await newest('rows')
      ) {
        await pause(10);
      }
      await settled((await newest('rows'))!.id);
      await trellis.call('POST', '/connections/metadata', { body: { ...place, metadata } });
    },
    /** How many records of the sync are there, and not deleted. */
    async live(variant = 'base', model = 'Row'): Promise<number> {
      const { body } = await trellis.call('GET', '/records/datasets', { headers });
      const datasets = body.datasets as { model: string; variant: string; records: number }[];
      return datasets.find((one) => one.model === model && one.variant === variant)?.records ?? 0;
    },
    async records(variant = 'base', model = 'Row'): Promise<SheetRecord[]> {
      const found: SheetRecord[] = [];
      let cursor = '';
      for (;;) {
        const query = `model=${model}&variant=${variant}&limit=10000${cursor && `&cursor=${cursor}`}`;
        const { body } = await trellis.call('GET', `/records?${query}`, { headers });
        found.push(...(body.records as SheetRecord[]));
        if (body.next_cursor === null) return found;
        cursor = String(body.next_cursor);
      }
    },
    action: (name: string, input: object, more: Record<string, string> = {}): Promise<Answer> =>
      trellis.call('POST', '/action/trigger', {
        headers: { ...headers, ...more },
        body: { action_name: name, input },
      }),
  };
}

/** The catalogue with other limits for an account of Google Sheets. */
export function catalogWith({ reads, windowS }: { reads: number; windowS: number }): Catalog {
  const catalog = loadCatalog(providersDirectory, authModes);
  const definition = catalog.get('google-sheet');
  const limits = definition.api.quota!.limits.map((limit) => ({
    ...limit,
    window_s: windowS,
    count: limit.per === 'account' ? reads : 1_000,
    ...(limit.burst && { burst: 1_000 }),
  }));
  const api = { ...definition.api, quota: { ...definition.api.quota!, limits } };
  const of = (name: string) => (name === definition.name ? { ...definition, api } : undefined);
  return {
    ...catalog,
    get: (name) => of(name) ?? catalog.get(name),
    find: (name) => of(name) ?? catalog.find(name),
  };
}

/** The payload of an action that failed on purpose. */
export function refusalOf({ body }: Answer): { type: string; message: string; [field: string]: unknown } {
  return (body.error as { payload: { type: string; message: string } }).payload;
}
