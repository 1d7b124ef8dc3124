import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { compile } from '../../sdk/compile/compile.ts';
import { actionCode, deployBody, deployBodyOf, flowConfig } from '../support/functions.ts';
import { countWaiting } from '../support/locks.ts';
import { type Answer, connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

let trellis: TestTrellis;
let headers: Record<string, string>;

const exec = (body: string, fields = '') =>
  actionCode({
    more: `input: z.any(), output: z.any(), ${fields}
  exec: async (nango, input) => { ${body} },`,
  });
const codes: Record<string, string> = {
  double: actionCode({ more: 'readOnly: true,' }),
  write: exec('return { wrote: input ?? null }'),
  nothing: exec('return { type: typeof input }', 'input: z.void(),'),
  text: exec('return "plain"'),
  purpose: exec('throw new nango.ActionError({ type: "out_of_stock", message: "None left.", sku: 7 })'),
  bug: exec('const none = null; return none.field'),
  refused: exec('return (await nango.get({ endpoint: "/v4/spreadsheets/none" })).data'),
  caught: exec(
    'try { await nango.get({ endpoint: "/v4/spreadsheets/none" }) } catch (e) { return { status: e.response.status } }',
  ),
  unreachable: exec('return await nango.uncontrolledFetch({ url: new URL("http://127.0.0.1:1/") })'),
  wrong_output: actionCode({ more: 'output: z.object({ n: z.string() }),' }),
  nul: exec('throw new nango.ActionError({ message: "a\\0b\\ud800", "\\0": "\\0" })'),
  spin: exec('while (true) {}'),
  wait: exec(
    'await new Promise((_, reject) => { setTimeout(reject, 60_000); nango.signal.addEventListener("abort", reject) })',
  ),
  writes_read_only: exec('await nango.setMetadata({})', 'readOnly: true,'),
  scoped: exec('return 1', 'scopes: ["https://www.googleapis.com/auth/drive"],'),
  identity: exec('return { connection: nango.connectionId, integration: nango.providerConfigKey }'),
  flaky: exec(`const seen = (await nango.getMetadata()).seen ?? 0;
    await nango.updateMetadata({ seen: seen + 1 });
    if (seen < 1) throw Object.assign(new Error("later"), { code: "unavailable" });
    return { seen }`),
};

const deploy = (body: object) => trellis.call('POST', '/sync/deploy', { body });
const call = (name: string, input?: unknown, more: { headers?: Record<string, string>; key?: string } = {}) =>
  trellis.call('POST', '/action/trigger', {
    body: { action_name: name, ...(input !== undefined && { input }) },
    headers: { ...headers, ...more.headers },
    ...(more.key && { key: more.key }),
  });
const errorOf = ({ body }: Pick<Answer, 'body'>) =>
  body.error as {
    code: string;
    message: string;
    payload: unknown;
    errors?: { path: string[] }[];
    upstream?: unknown;
  };

/** Asks until it is there. */
async function outcome(path: string, key?: string): Promise<Answer> {
  for (let left = 200; left > 0; left--) {
    const answer = await trellis.call('GET', path, key === undefined ? {} : { key });
    if (answer.status !== 404) return answer;
    await pause(50);
  }
  throw new Error(`${path} has no outcome`);
}

before(async () => {
  trellis = await openTrellis();
  ({ headers } = await connect(trellis));
  const { functions } = await compile(join(import.meta.dirname, '../functions/samples'));
  const samples = deployBodyOf(
    functions.filter(({ integrationKey, kind }) => integrationKey === 'google-sheet' && kind === 'action'),
  );
  const own = Object.entries(codes).map(([name, code]) => flowConfig({ name, code }));
  const answer = await deploy(deployBody([...own, ...samples.flowConfigs]));
  assert.equal(answer.status, 200, answer.text);
});
after(() => trellis.close());

describe('an action that is waited for', () => {
  test('answers its output as it is', async () => {
    const answer = await call('double', { n: 21 });
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(answer.body, { n: 42 });
    const text = await call('text');
    assert.deepEqual([text.status, text.text], [200, '"plain"']);
    assert.match(text.headers.get('content-type') ?? '', /^application\/json/);
  });

  test('written for another service, it appends a row at the provider', async () => {
    const made = await call('create-spreadsheet', { title: 'Orders', kind: 'plain' });
    assert.equal(made.status, 200, made.text);
    const answer = await call('append-row', { spreadsheetId: made.body.id, values: ['a', 1, true] });
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.body.rows, 1);
  });

  test('gets nothing where nothing was given', async () => {
    const answer = await call('nothing');
    assert.deepEqual([answer.status, answer.body], [200, { type: 'undefined' }], answer.text);
  });

  test('an input that does not fit is 400 and names the field; the code does not run', async () => {
    const answer = await call('double', { n: 'many' });
    assert.equal(answer.status, 400, answer.text);
    assert.equal(errorOf(answer).code, 'invalid_action_input');
    assert.deepEqual(
      errorOf(answer).errors?.map(({ path }) => path),
      [['input', 'n']],
    );
  });

  for (const [name, status, code] of [
    ['purpose', 500, 'action_script_runtime_error'],
    ['bug', 500, 'script_internal_error'],
    ['refused', 424, 'script_http_error'],
    ['wrong_output', 500, 'invalid_action_output'],
    ['nul', 500, 'action_script_runtime_error'],
    ['writes_read_only', 403, 'action_is_read_only'],
    ['scoped', 424, 'missing_scopes'],
    ['none', 404, 'not_found'],
  ] as const) {
    test(`${name} is ${status} ${code}`, async () => {
      const answer = await call(name, name === 'wrong_output' ? { n: 1 } : {});
      assert.deepEqual([answer.status, errorOf(answer).code], [status, code], answer.text);
      if (name === 'purpose')
        assert.deepEqual(errorOf(answer).payload, { type: 'out_of_stock', message: 'None left.', sku: 7 });
      if (name === 'refused') assert.equal((errorOf(answer).upstream as { status: number }).status, 404);
      if (name === 'bug') {
        const { name: kind, stacktrace } = errorOf(answer).payload as { name: string; stacktrace: string[] };
        assert.equal(kind, 'TypeError');
        assert.ok(stacktrace.length > 0 && !stacktrace.join().includes('/work'), stacktrace.join('\n'));
      }
    });
  }

  test('what the provider refused can be caught, as from the client that functions are written for', async () => {
    assert.deepEqual((await call('caught')).body, { status: 404 });
  });

  test('is for the connection of the headers alone, whatever the input contains', async () => {
    const other = await connect(trellis);
    const answer = await call(
      'identity',
      { connectionId: 'another', connection_id: 'another' },
      { headers: other.headers },
    );
    assert.deepEqual(answer.body, { connection: other.connectionId, integration: 'google-sheet' });
    const unknown = await call('identity', {}, { headers: { 'connection-id': 'nobody' } });
    assert.deepEqual([unknown.status, errorOf(unknown).code], [400, 'unknown_connection']);
    const foreign = await call('identity', {}, { key: trellis.keys.prod });
    assert.deepEqual([foreign.status, errorOf(foreign).code], [400, 'unknown_connection']);
  });

  test('a key without functions:write calls read-only actions, and no others', async () => {
    const key = await trellis.keyWith('functions:read');
    assert.equal((await call('double', { n: 1 }, { key })).status, 200);
    assert.equal((await call('write', {}, { key })).status, 403);
    assert.equal(
      (await call('double', { n: 1 }, { key: await trellis.keyWith('records:read') })).status,
      403,
    );
  });

  const waiting = (signal: AbortSignal) =>
    fetch(`${trellis.baseUrl}/action/trigger`, {
      method: 'POST',
      headers: {
        ...headers,
        authorization: `Bearer ${trellis.keys.dev}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify({ action_name: 'wait' }),
      signal,
    });

  test('its caller hangs up, and the run is cancelled', async () => {
    const gone = new AbortController();
    const asked = waiting(gone.signal);
    await stateOf('wait', 'running');
    gone.abort();
    await assert.rejects(asked);
    await stateOf('wait', 'cancelled');
  });

  test('its caller hangs up before it is found, and the run is cancelled', async () => {
    await trellis.db.query('delete from run');
    const gone = new AbortController();
    await trellis.db.transaction(async (tx) => {
      await tx.query('lock table function_version in access exclusive mode');
      const closed = new Promise<void>((resolve) => {
        trellis.app.server.once('request', (request) => request.once('close', resolve));
      });
      const asked = assert.rejects(waiting(gone.signal));
      // The loop that plans runs waits for this lock too.
      while ((await countWaiting(trellis.db, 'relation', 'as "isEnabled"')) === 0) await pause(10);
      gone.abort();
      await Promise.all([asked, closed]);
    });
    await stateOf('wait', 'cancelled');
  });

  test('an input that is nested too deep is 400, and nothing is called', async () => {
    let input: unknown = 1;
    for (let depth = 0; depth < 200; depth += 1) input = [input];
    for (const more of [{}, { 'x-async': 'true' }]) {
      const answer = await call('text', input, { headers: more });
      assert.deepEqual([answer.status, errorOf(answer).code], [400, 'invalid_action_input'], answer.text);
      assert.deepEqual(
        errorOf(answer).errors?.map(({ path }) => path),
        [['input']],
      );
    }
  });

  test('ten at once each get their own answer', async () => {
    const answers = await Promise.all(Array.from({ length: 10 }, (_, n) => call('double', { n })));
    assert.deepEqual(
      answers.map(({ body }) => body),
      Array.from({ length: 10 }, (_, n) => ({ n: 2 * n })),
    );
  });

  test('one that is switched off is 404 disabled_resource', async () => {
    const path = '/integrations/google-sheet/functions/text?type=action';
    assert.equal((await trellis.call('PATCH', path, { body: { enabled: false } })).status, 200);
    const answer = await call('text');
    assert.deepEqual([answer.status, errorOf(answer).code], [404, 'disabled_resource']);
    await trellis.call('PATCH', path, { body: { enabled: true } });
    assert.equal((await call('text')).status, 200);
  });
});

describe('an action that is not waited for', () => {
  const queue = (name: string, input: unknown, more: Record<string, string> = {}) =>
    call(name, input, { headers: { 'x-async': 'true', ...more } });

  test('is answered by where its output will be', async () => {
    const queued = await queue('double', { n: 4 });
    assert.equal(queued.status, 202, queued.text);
    const { id, statusUrl } = queued.body as { id: string; statusUrl: string };
    assert.equal(statusUrl, `/action/${id}`);
    assert.equal(queued.headers.get('location'), statusUrl);
    const answer = await outcome(statusUrl);
    assert.deepEqual([answer.status, answer.body], [200, { n: 8 }]);
    const foreign = await trellis.call('GET', statusUrl, { key: trellis.keys.prod });
    assert.equal(foreign.status, 404);
    assert.equal((await trellis.call('GET', '/action/no-uuid')).status, 400);
  });

  test('its outcome is for callers that could have called it', async () => {
    const reader = await trellis.keyWith('functions:read');
    for (const [name, input] of [
      ['write', { n: 4 }],
      ['purpose', {}],
    ] as const) {
      const { statusUrl } = (await queue(name, input)).body as { statusUrl: string };
      await outcome(statusUrl);
      const refused = await trellis.call('GET', statusUrl, { key: reader });
      assert.deepEqual([refused.status, errorOf(refused).code], [403, 'forbidden']);
    }
    const { statusUrl } = (await queue('double', { n: 4 })).body as { statusUrl: string };
    await outcome(statusUrl);
    const served = await trellis.call('GET', statusUrl, { key: reader });
    assert.equal(served.status, 200, served.text);
  });

  test('its failure is answered as for a synchronous call', async () => {
    const { statusUrl } = (await queue('purpose', {})).body as { statusUrl: string };
    const answer = await outcome(statusUrl);
    assert.deepEqual([answer.status, errorOf(answer).code], [500, 'action_script_runtime_error']);
  });

  test('what its input and output say is in no table in plain text', async () => {
    const { statusUrl } = (await queue('write', { secret: 'very-own-words' })).body as { statusUrl: string };
    assert.deepEqual((await outcome(statusUrl)).body, { wrote: { secret: 'very-own-words' } });
    const rows = await trellis.db.query<{ text: string }>('select run::text as text from run');
    assert.ok(rows.every(({ text }) => !text.includes('very-own-words')));
  });

  test('the application gets an event when it is over', async () => {
    const { id, statusUrl } = (await queue('double', { n: 1 })).body as { id: string; statusUrl: string };
    await outcome(statusUrl);
    const events = await trellis.db.query<{ type: string; data: Record<string, unknown> }>(
      "select type, data from event where data ->> 'run' = $1",
      [id],
    );
    assert.deepEqual(
      events.map(({ type }) => type),
      ['action.succeeded'],
    );
    assert.equal(events[0]?.data.function, 'double');
  });
});

test('an action whose node was lost is not run a second time, unless retries were requested', async () => {
  const lost = async (maxAttempts: number) => {
    const [run] = await trellis.db.query<{ id: string }>(
      `insert into run (id, environment_id, function_id, version_id, connection_id, kind, trigger, state, started_at,
         attempt, most_attempts, owner, lease_until)
       select gen_random_uuid(), function.environment_id, function.id, function.version_id, connection.id, 'action',
         'action', 'running', now(), 1, $1, gen_random_uuid(), now() - interval '1 second'
       from function
       join connection on connection.integration_id = function.integration_id
       where function.name = 'write'
       order by connection.id
       limit 1
       returning id`,
      [maxAttempts],
    );
    return outcome(`/action/${run!.id}`);
  };
  const once = await lost(1);
  assert.deepEqual([once.status, errorOf(once).code], [503, 'unavailable']);
  const again = await lost(2);
  assert.deepEqual([again.status, again.body], [200, { wrote: null }]);
});

test('an action with a temporary failure is retried on request', async () => {
  const own = await connect(trellis);
  const once = await call('flaky', {}, { headers: own.headers });
  assert.equal(once.status, 503, once.text);
  const another = await connect(trellis);
  const answer = await call('flaky', {}, { headers: { ...another.headers, 'x-max-retries': '2' } });
  assert.deepEqual([answer.status, answer.body], [200, { seen: 1 }], answer.text);
});

/** Waits until the last run of the action is in the state. */
async function stateOf(name: string, wanted: string): Promise<void> {
  for (let left = 1200; left > 0; left--) {
    const [run] = await trellis.db.query<{ state: string }>(
      `select state from run join function on function.id = run.function_id where name = $1 order by run.id desc limit 1`,
      [name],
    );
    if (run?.state === wanted) return;
    await pause(50);
  }
  throw new Error(`the run of ${name} is not ${wanted}`);
}
