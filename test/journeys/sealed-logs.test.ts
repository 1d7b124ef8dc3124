// What the code of functions writes and throws stands in no table in plain text, and goes with its connection.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { actionCode, deployBody, flowConfig, syncCode } from '../support/functions.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

type Json = Record<string, unknown>;
type Line = { position: number; attempt: number; message: string; level: string; deleted: boolean };
type RunError = { code: string; message: string; payload?: unknown };
const gone = 'Deleted with the connection.';
/** What an account may hold; each test looks for it in every table. */
const logged = `logged-${randomUUID()}`;
const thrown = `thrown-${randomUUID()}`;
const carried = `carried-${randomUUID()}`;
/** No code of the form that is kept in plain text. */
const codeOfText = `code of ${randomUUID()}`;
const writes = `
  for (let n = 0; n < 3; n += 1) await nango.log('${logged} ' + n);
  const error = new Error('${thrown}');
  error.payload = { of: '${carried}' };`;

let trellis: TestTrellis;
let serviceLog = '';
before(async () => {
  trellis = await openTrellis();
  const { log } = trellis.watch;
  const write = log.write.bind(log);
  log.write = (line) => {
    serviceLog += line;
    write(line);
  };
  await trellis.call('POST', '/integrations', {
    body: {
      provider: 'unauthenticated',
      unique_key: 'open',
      integration_config: { base_url: 'https://api.example.com' },
    },
  });
  const config = (name: string, code: string, type: 'action' | 'sync') =>
    flowConfig({ name, code, type, integration: 'open' });
  const deployed = await trellis.call('POST', '/sync/deploy', {
    body: deployBody(
      [
        config('act', actionCode({ more: `exec: async (nango) => { ${writes} throw error; },` }), 'action'),
        config(
          'coded',
          actionCode({
            more: `exec: async (nango, input) => { throw Object.assign(new Error('x'), { code: input.n === 1 ? '${codeOfText}' : 'E-row.1_a' }); },`,
          }),
          'action',
        ),
        config(
          'flaky',
          syncCode({
            more: `autoStart: false, exec: async (nango) => { ${writes} throw Object.assign(error, { code: 'unavailable' }); },`,
          }),
          'sync',
        ),
        config(
          'broken',
          syncCode({ more: `autoStart: false, exec: async (nango) => { ${writes} throw error; },` }),
          'sync',
        ),
      ],
      {
        onEventScriptsByProvider: [
          {
            providerConfigKey: 'open',
            scripts: [
              {
                name: 'judge',
                event: 'validate-connection',
                fileBody: {
                  ts: '//',
                  js: `exports.default = { type: 'onEvent', event: 'validate-connection', description: 'A test.',
                    async exec(nango) {
                      await nango.log('${logged} judged');
                      const { tags } = await nango.getConnection();
                      if (tags.end_user_id === 'refused') throw new Error('${thrown}');
                    } };`,
                },
              },
            ],
          },
        ],
      },
    ),
  });
  assert.equal(deployed.status, 200, deployed.text);
});
after(() => trellis.close());

async function made(id: string): Promise<void> {
  const body = { provider_config_key: 'open', connection_id: id, credentials: { type: 'NONE' } };
  const answer = await trellis.call('POST', '/connections', { body });
  assert.equal(answer.status, 201, answer.text);
}
const remove = (id: string) => trellis.call('DELETE', `/connections/${id}?provider_config_key=open`);
const place = (id: string) => ({ 'connection-id': id, 'provider-config-key': 'open' });
const trigger = (name: string, id: string) =>
  trellis.call('POST', '/sync/trigger', {
    body: { provider_config_key: 'open', connection_id: id, syncs: [name] },
  });
async function get<T = Json>(path: string): Promise<T> {
  const answer = await trellis.call('GET', path);
  assert.equal(answer.status, 200, answer.text);
  return answer.body as T;
}
async function until<T>(look: () => Promise<T | undefined>): Promise<T> {
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    await pause(50);
  }
}
const runOf = (name: string, state: string) =>
  until(async () => {
    const { runs } = await get<{ runs: (Json & { id: string; error: RunError })[] }>(
      `/functions/runs?function=${name}&limit=1`,
    );
    return runs[0]?.state === state ? runs[0] : undefined;
  });
const linesOf = (id: string, query = '') =>
  get<{ lines: Line[]; has_more: boolean; next_after: number | null }>(
    `/functions/runs/${id}/lines?${query}`,
  );
const operationOf = (run: string) =>
  until(async () => {
    const { operations } = await get<{ operations: { id: string; request_id: string }[] }>(
      '/operations?type=run',
    );
    const found = operations.find(({ request_id: id }) => id === run);
    return found && get<{ messages: Json[] }>(`/operations/${found.id}`);
  });

/** Tables with one of these texts in any column but the events of the application, whose messages it asked for. */
async function tablesWith(...texts: string[]): Promise<string[]> {
  const tables = await trellis.db.query<{ name: string }>(
    `select format('%I.%I', schemaname, tablename) as name
     from pg_tables
     where schemaname not in ('pg_catalog', 'information_schema')`,
  );
  const found: string[] = [];
  for (const { name } of tables) {
    const [row] = await trellis.db.query<{ count: number }>(
      `select count(*)::integer as count
       from ${name} as one
       where exists (select from unnest($1::text[]) as text where strpos(one::text, text) > 0
         -- As bytea is written.
         or strpos(one::text, encode(convert_to(text, 'UTF8'), 'hex')) > 0
         or strpos(one::text, rtrim(encode(convert_to(text, 'UTF8'), 'base64'), '=')) > 0)`,
      [texts],
    );
    if (row!.count > 0) found.push(name.replace(/_\d{8}$/, ''));
  }
  return [...new Set(found)].sort();
}

test('output and errors of code are returned to callers, are in no log in plain text, and are deleted with the connection', async () => {
  await made('one');
  const answer = await trellis.call('POST', '/action/trigger', {
    headers: place('one'),
    body: { action_name: 'act', input: { n: 1 } },
  });
  assert.ok(answer.status >= 400 && answer.text.includes(thrown), answer.text);
  assert.match(serviceLog, /"code":"script_internal_error".*"msg":"request failed"/);
  assert.ok(!serviceLog.includes(thrown));
  const run = await runOf('act', 'failed');
  const whole = await get<{ error: RunError }>(`/functions/runs/${run.id}`);
  assert.equal(whole.error.message, thrown);
  assert.ok(JSON.stringify(whole.error.payload).includes(thrown));
  const { lines } = await linesOf(run.id);
  assert.deepEqual(
    lines.map(({ message, deleted, attempt }) => [message, deleted, attempt]),
    [...[0, 1, 2].map((n) => [`${logged} ${n}`, false, 1]), [`${whole.error.code}: ${thrown}`, false, 1]],
  );
  const { messages } = await operationOf(run.id);
  assert.deepEqual(
    messages.map(({ message, deleted }) => [message, deleted]),
    lines.map(({ message }) => [message, false]),
  );
  assert.deepEqual(await tablesWith(logged, thrown, carried), []);

  // Within the run, and nowhere else.
  assert.deepEqual(
    (await linesOf(run.id, `text=${logged.toUpperCase()}%201`)).lines.map(({ position }) => position),
    [lines[1]!.position],
  );
  assert.deepEqual((await get<{ operations: Json[] }>(`/operations?text=${logged}`)).operations, []);
  assert.ok(
    (await get<{ operations: Json[] }>(`/operations?text=${whole.error.code}`)).operations.length > 0,
  );

  assert.equal((await remove('one')).status, 200);
  const later = await get<{ error: RunError; connection_id: string | null }>(`/functions/runs/${run.id}`);
  assert.deepEqual([later.connection_id, later.error], [null, { code: whole.error.code, message: gone }]);
  assert.deepEqual((await runOf('act', 'failed')).error, later.error);
  const left = (await linesOf(run.id)).lines;
  assert.deepEqual(
    left.map(({ message, deleted }) => [message, deleted]),
    lines.map(() => [gone, true]),
  );
  assert.deepEqual((await linesOf(run.id, `text=${logged}`)).lines, []);
  assert.deepEqual((await linesOf(run.id, 'text=Deleted')).lines, []);
  const { messages: leftMessages } = await operationOf(run.id);
  assert.deepEqual(
    leftMessages.map(({ message, deleted }) => [message, deleted]),
    lines.map(() => [gone, true]),
  );
});

test('a thrown code that is not an identifier is sealed with the message', async () => {
  await made('coded');
  const errorOf = async (n: number) => {
    const body = { action_name: 'coded', input: { n } };
    const headers = { ...place('coded'), 'x-async': 'true' };
    const { id } = (await trellis.call('POST', '/action/trigger', { headers, body })).body as { id: string };
    await operationOf(id);
    return (await get<{ error: RunError }>(`/functions/runs/${id}`)).error;
  };
  const { code, payload } = await errorOf(1);
  assert.deepEqual([code, (payload as { thrown_code: string }).thrown_code], ['function_threw', codeOfText]);
  assert.deepEqual(await tablesWith(codeOfText), []);
  const plain = await errorOf(2);
  assert.deepEqual([plain.code, 'thrown_code' in (plain.payload as object)], ['E-row.1_a', false]);
});

test('another connection of the same ID opens nothing of the one before', async () => {
  await made('again');
  await trellis.call('POST', '/action/trigger', {
    headers: place('again'),
    body: { action_name: 'act', input: { n: 1 } },
  });
  const { id } = await runOf('act', 'failed');
  await operationOf(id);
  assert.equal((await remove('again')).status, 200);
  await made('again');
  assert.ok((await linesOf(id)).lines.every(({ deleted }) => deleted));
  assert.ok((await operationOf(id)).messages.every(({ deleted }) => deleted));
});

test('errors of syncs are in their state and in earlier attempts, and sealed in both', async () => {
  await made('syncs');
  await trigger('broken', 'syncs');
  await runOf('broken', 'failed');
  await trigger('flaky', 'syncs');
  const waiting = await until(async () => {
    const { runs } = await get<{ runs: { earlier_attempts: { error: RunError }[]; error: RunError }[] }>(
      '/functions/runs?function=flaky',
    );
    return runs[0]?.earlier_attempts.length === 1 ? runs[0] : undefined;
  });
  const { error, earlier_attempts: earlier } = waiting;
  assert.deepEqual([error.message, earlier[0]?.error], [thrown, { code: 'unavailable', message: thrown }]);
  const { syncs } = await get<{ syncs: { function: string; last_run: { error: RunError } | null }[] }>(
    '/functions/syncs?connection_id=syncs',
  );
  assert.equal(syncs.find(({ function: name }) => name === 'broken')?.last_run?.error.message, thrown);
  const { syncs: states } = await get<{ syncs: { name: string; error: RunError | null }[] }>(
    '/sync/status?provider_config_key=open&connection_id=syncs&syncs=*',
  );
  assert.equal(states.find(({ name }) => name === 'broken')?.error?.message, thrown);
  // The application's events tell why a sync failed.
  assert.deepEqual(await tablesWith(logged, thrown, carried), ['public.event']);
  assert.deepEqual(await tablesWith(logged, carried), []);
});

test('code that judges a connection which is not stored yet seals with the key of the environment', async () => {
  await made('judged');
  const { id } = await runOf('judge', 'succeeded');
  const { lines } = await linesOf(id);
  assert.deepEqual(
    lines.map(({ message, deleted }) => [message, deleted]),
    [[`${logged} judged`, false]],
  );
  assert.deepEqual(await tablesWith(logged), []);
});

test('the activity log does not keep why code refused a connection that was made by a form', async () => {
  const session = await trellis.call('POST', '/connect/sessions', { body: { end_user: { id: 'refused' } } });
  const { token } = session.body.data as { token: string };
  const path = `/auth/unauthenticated/open?connect_session_token=${token}`;
  const answer = await trellis.call('POST', path, { key: undefined, body: {} });
  assert.equal(answer.status, 400);
  assert.ok(answer.text.includes(thrown), answer.text);
  const { messages } = await until(async () => {
    const { operations } = await get<{ operations: { id: string; status: string }[] }>(
      '/operations?type=connect',
    );
    const [failed] = operations.filter(({ status }) => status === 'failed');
    return failed && get<{ messages: Json[] }>(`/operations/${failed.id}`);
  });
  assert.deepEqual(
    messages.map(({ level, message }) => [level, message]),
    [['error', 'The connection was refused.']],
  );
  assert.deepEqual(await tablesWith(logged, thrown), ['public.event']);
});

test('what services before this one wrote in plain text is read as it is', async () => {
  await made('old');
  await trellis.call('POST', '/action/trigger', {
    headers: place('old'),
    body: { action_name: 'act', input: { n: 1 } },
  });
  const { id } = await runOf('act', 'failed');
  await trellis.db.query('delete from run_line where run_id = $1', [id]);
  await trellis.db.query(
    `insert into run_line (run_id, position, at, level, message) values ($1, 0, now(), 'info', 'in the open')`,
    [id],
  );
  const error = { code: 'function_threw', message: 'in the open', payload: { sealed: 'no', name: 'Error' } };
  await trellis.db.query('update run set error = $2, earlier = $3 where id = $1', [
    id,
    JSON.stringify(error),
    JSON.stringify([{ attempt: 1, ended_at: new Date(), error: { code: 'a', message: 'in the open' } }]),
  ]);
  const { lines } = await linesOf(id, 'text=OPEN');
  assert.deepEqual([lines[0]?.message, lines[0]?.deleted], ['in the open', false]);
  const run = await get<{ error: RunError; earlier_attempts: { error: RunError }[] }>(
    `/functions/runs/${id}`,
  );
  assert.deepEqual([run.error, run.earlier_attempts[0]?.error.message], [error, 'in the open']);
});

test('bytes that no key opens do not prevent reading of the rest', async () => {
  await made('spoiled');
  await trellis.call('POST', '/action/trigger', {
    headers: place('spoiled'),
    body: { action_name: 'act', input: { n: 1 } },
  });
  const { id } = await runOf('act', 'failed');
  const { messages } = await operationOf(id);
  await trellis.db.query(`update run_line set sealed = '\\x00' where run_id = $1 and position % 10 = 0`, [
    id,
  ]);
  await trellis.db.query(`update run set error = jsonb_set(error, '{sealed}', '"AAAA"') where id = $1`, [id]);
  await trellis.db.query(`update operation_message set sealed = '\\x01' where position = 0`);
  const { lines } = await linesOf(id);
  assert.deepEqual(
    lines.map(({ deleted }) => deleted),
    [true, false, false, false],
  );
  const { error } = await get<{ error: RunError }>(`/functions/runs/${id}`);
  assert.equal(error.message, gone);
  await trellis.db.query(`update run set error = jsonb_set(error, '{sealed}', '5') where id = $1`, [id]);
  assert.equal((await runOf('act', 'failed')).error.message, gone);
  assert.equal((await operationOf(id)).messages.length, messages.length);
});

test('a search in a long log reads a bounded number of lines, and returns where to continue', async () => {
  await made('long');
  await trellis.call('POST', '/action/trigger', {
    headers: place('long'),
    body: { action_name: 'act', input: { n: 1 } },
  });
  const { id } = await runOf('act', 'failed');
  await trellis.db.query(
    `insert into run_line (run_id, position, at, level, message)
     select $1, 1000000 + n, now(), 'info', 'filler ' || n
     from generate_series(1, 4500) as n`,
    [id],
  );
  const found: string[] = [];
  let calls = 0;
  for (let after: number | null = -1; after !== null; calls += 1) {
    const page = await linesOf(id, `text=r%204500&after=${after}`);
    found.push(...page.lines.map(({ message }) => message));
    assert.equal(page.has_more, page.next_after !== null);
    after = page.next_after;
  }
  assert.deepEqual([found, calls], [['filler 4500'], 5]);
  for (const text of ['', 'x'.repeat(201)])
    assert.equal((await trellis.call('GET', `/functions/runs/${id}/lines?text=${text}`)).status, 400);
});
