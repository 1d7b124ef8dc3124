// The calls that `growth.ts` measures: those of applications, and the requests of the dashboard's pages.

import { deployBody, flowConfig } from '../test/support/functions.ts';

/** Sends JSON with the key of the service; throws unless the answer is a 2xx. */
export type Call = (
  method: string,
  path: string,
  options?: { headers?: Record<string, string>; body?: object },
) => Promise<Buffer>;

const integrations = Array.from({ length: 5 }, (_, n) => `bench-${n}`);
const functionsOfEach = 4;
const sync = `
  const z = require('zod');
  exports.default = {
    type: 'sync', description: 'A sync.', frequency: 'every day', models: { Row: z.object({ id: z.string() }).loose() },
    async exec() {},
  };`;

/** Integrations with functions, an endpoint, and a first connection with a dataset. */
export async function prepare(call: Call, baseUrl: string): Promise<void> {
  for (const key of integrations)
    await call('POST', '/integrations', {
      body: {
        integration_id: key,
        provider: 'private-api-key',
        integration_config: { base_url: baseUrl },
      },
    });
  const functions = integrations.flatMap((integration) =>
    Array.from({ length: functionsOfEach }, (_, n) =>
      flowConfig({ integration, name: `rows-${n}`, code: sync, type: 'sync' }),
    ),
  );
  await call('POST', '/functions/deploys', { body: deployBody(functions) });
  await call('POST', '/events/endpoints', { body: { url: baseUrl } });
  await call('POST', '/connections', connectionOf('first'));
  await call('POST', '/records', { headers: headersOf('first'), body: saveOf(1) });
}

const [integration] = integrations;
const connectionOf = (id: string) => ({
  body: {
    integration_id: integration,
    connection_id: id,
    end_user: { id, email: `${id}@growth.invalid` },
    credentials: { type: 'API_KEY', apiKey: 'secret' },
  },
});
const headersOf = (id: string) => ({ 'integration-id': integration!, 'connection-id': id });
const saveOf = (version: number) => ({
  model: 'Row',
  records: Array.from({ length: 100 }, (_, n) => ({ id: `row-${n}`, version, text: 'x'.repeat(100) })),
});

const times = 10;

/** Makes each call for several connections, `measure` all of one name. The connections are new and end with the calls. */
export async function measureCalls(
  call: Call,
  {
    of,
    measure,
  }: { of: string; measure: (name: string, calls: (() => Promise<unknown>)[]) => Promise<void> },
): Promise<void> {
  const ids = Array.from({ length: times }, (_, n) => `${of}-${n}`);
  const each = (name: string, work: (id: string) => Promise<unknown>) =>
    measure(
      name,
      ids.map((id) => () => work(id)),
    );
  await each('connect', (id) => call('POST', '/connections', connectionOf(id)));
  await each('connect session', (id) =>
    call('POST', '/connect/sessions', { body: { end_user: { id }, allowed_integrations: [integration] } }),
  );
  await each('proxy', (id) => call('GET', '/proxy/v1/things', { headers: headersOf(id) }));
  const save = (version: number) => (id: string) =>
    call('POST', '/records', { headers: headersOf(id), body: saveOf(version) });
  await each('save 100, new', save(1));
  await each('save 100, changed', save(2));
  await each('save 100, unchanged', save(2));
  const list = async (id: string) =>
    JSON.parse((await call('GET', '/records?model=Row&limit=100', { headers: headersOf(id) })).toString());
  await each('list 100', list);
  const cursors = new Map<string, string>();
  for (const id of ids) cursors.set(id, (await list(id)).records.at(-1)._trellis_metadata.cursor);
  await each('list after the end', (id) =>
    call('GET', `/records?model=Row&cursor=${cursors.get(id)}`, { headers: headersOf(id) }),
  );
  await each('prune 100', (id) => {
    const body = { model: 'Row', until_cursor: cursors.get(id), limit: 100 };
    return call('PATCH', '/records/prune', { headers: headersOf(id), body });
  });
  for (const path of pages) await each(path, (id) => call('GET', ...pageOf(path, id)));
  await each('delete a connection', (id) =>
    call('DELETE', `/connections/${id}?integration_id=${integration}`),
  );
}

/** The requests of the dashboard's pages. `{id}` is a connection, `{day}` and `{month}` are times in the past. */
const pages = [
  '/environment/health',
  '/operations/stats?type=proxy&step_s=3600&from={day}',
  '/operations/stats?type=proxy&by=type&from={month}',
  '/integrations?include=usage',
  '/connections?count=true&limit=50&page=0',
  '/connections?count=true&limit=50&page=0&sort=last_used',
  '/connections?count=true&limit=50&page=0&status=needs_reauth',
  '/connections?count=true&limit=50&page=0&syncs=failing',
  '/connections?count=true&limit=50&page=0&integration_id=bench-1',
  '/connections?count=true&limit=50&page=0&search=person42',
  '/connections?count=true&limit=50&page=0&tags%5Bteam%5D=team-7',
  '/connections?integration_id=bench-1&end_user_id=user-50&limit=1',
  '/connections?connection_id={id}',
  '/connections/{id}?integration_id=bench-0',
  '/operations?integration_id=bench-0&connection_id={id}&limit=50',
  '/functions/syncs?integration_id=bench-0&connection_id={id}&limit=200',
  '/functions/runs?integration_id=bench-0&connection_id={id}&limit=50',
  '/records/datasets',
  '/records/consumers?model=Row&variant=base',
  '/operations?limit=50',
  '/operations?limit=50&status=failed',
  '/operations?limit=50&type=run',
  '/operations?limit=50&type=connect',
  '/operations?limit=50&text=nowhere',
  '/operations?limit=50&text=person50@growth.invalid',
  '/operations/stats?step_s=3600&from={day}',
  '/operations/stats?step_s=3600&from={day}&connection_id={id}',
  '/functions?limit=50',
  '/functions/syncs?limit=25',
  '/functions/syncs?limit=25&state=failing',
  '/functions/syncs?limit=25&state=paused',
  '/functions/syncs?limit=25&integration_id=bench-1&function=rows-1',
  '/functions/runs?limit=50',
  '/functions/runs?limit=50&state=failed',
  '/functions/runs?limit=50&state=running',
  '/functions/runs?limit=50&integration_id=bench-1',
  '/events/latest?limit=50',
  '/events/latest?limit=50&types=connection.deleted',
  '/events/endpoints?limit=200',
  '/events/deliveries?limit=50',
  '/events/deliveries?limit=50&status=dead',
  '/audit?limit=50',
  '/audit?limit=50&action=key.created',
];

function pageOf(path: string, id: string): [string, { headers: Record<string, string> }] {
  const ago = (days: number) => new Date(Date.now() - days * 86_400_000).toISOString();
  return [
    path.replaceAll('{id}', id).replace('{day}', ago(1)).replace('{month}', ago(30)),
    { headers: path.startsWith('/records') ? headersOf(id) : {} },
  ];
}
