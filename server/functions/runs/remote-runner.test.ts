import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { openDatabaseCable } from '../../../test/support/database-cable.ts';
import { type Db, openDb } from '../../db/pool.ts';
import { createRemoteCallServer, type HandleRemoteCall } from '../../nodes/remote-call-server.ts';
import { createRemoteCalls } from '../../nodes/remote-calls.ts';
import { getFunction } from '../deploys/store.ts';
import { findStopped, takeClaim } from './claims.ts';
import { beginRun } from './queue.ts';
import { remoteHandlers } from './remote-handlers.ts';
import { asBytes, runRemotely, validateRemotely } from './remote-runner.ts';
import { openRunsBench, type RunsBench } from './runs.fixture.ts';
import { type Ending, settle } from './settle.ts';

/** What becomes of runs that a node cannot run itself, where those that could do not. */
let bench: RunsBench;
before(async () => {
  bench = await openRunsBench();
});
after(() => bench.end());
beforeEach(async () => {
  await bench.db.query('delete from run');
  await bench.db.query('delete from function');
});

let connections = 0;
async function begin(body = 'return 1;') {
  await bench.deploy(
    'act',
    `exports.default = { type: 'action', description: 'A test.', async exec() { ${body} } };`,
    'action',
  );
  connections += 1;
  const connection = await bench.connect(`c-${connections}`);
  const found = await getFunction(bench.db, { ...bench.place, name: 'act' });
  const of = { ...connection, environmentId: bench.environment.id, integrationKey: 'api' };
  const asked = {
    connection: of,
    found,
    environment: 'dev',
    kind: 'action',
    priority: 20,
    input: null,
  } as const;
  return beginRun(bench.db, { ...asked, now: bench.now() });
}
const elsewhere = (untakenAfterMs?: number, db: Db = bench.db) =>
  runRemotely({
    db,
    vault: bench.one.vault,
    remoteCalls: createRemoteCalls(db, { ...(untakenAfterMs && { untakenAfterMs }) }),
    now: bench.now,
  });
function desk(run: HandleRemoteCall) {
  const opened = createRemoteCallServer(bench.db, {
    kinds: { run },
    pollMs: 10,
    remainingCapacity: () => 20,
    onError: () => {},
  });
  opened.start();
  return opened;
}
const states = async () => (await bench.runs()).map(({ state, error }) => [state, error?.code]);

test('a run that no node takes is over, and may be tried again', async () => {
  const ending = await elsewhere(1).runNow(await begin());
  assert.equal(ending?.state === 'failed' && ending.mayPass, true);
  assert.deepEqual(await states(), [['failed', 'function_unavailable']]);
});

test('a run whose caller disconnects before a node took it is cancelled', async () => {
  const ending = await elsewhere().runNow(await begin(), AbortSignal.abort());
  assert.equal(ending?.state, 'cancelled');
  assert.deepEqual(await states(), [['cancelled', 'cancelled']]);
});

test('a run whose remote call could not be made is over, so that a node that finds the call later does not start it', async () => {
  const claim = await begin();
  const outage = new Error('the answer was lost');
  const failing = { ask: () => Promise.reject(outage) };
  const asked = runRemotely({
    db: bench.db,
    vault: bench.one.vault,
    remoteCalls: failing,
    now: bench.now,
  }).runNow(claim);
  await assert.rejects(asked, outage);
  assert.equal(await takeClaim(bench.db, claim), undefined);
  assert.deepEqual(await states(), [['failed', 'function_unavailable']]);
});

test('a run that its node may continue although its remote call is lost is ended there when the caller hangs up', async () => {
  const claim = await begin();
  const lost = { ask: () => Promise.resolve({ none: 'lost' as const }) };
  const asking = runRemotely({ db: bench.db, vault: bench.one.vault, remoteCalls: lost, now: bench.now });
  const ending = await asking.runNow(claim, AbortSignal.abort());
  assert.match(
    ending?.state === 'cancelled' ? ending.error.message : '',
    /The effects of the run until then remain/,
  );
  assert.deepEqual(await states(), [['cancelled', 'cancelled']]);
  assert.deepEqual(await findStopped(bench.db, [claim]), { lost: [claim.id], cancelled: [] });
});

test('of a run that was lost with its node nothing is told where no other node ends it', async () => {
  const claim = await begin();
  await bench.db.query("update run set lease_until = clock_timestamp() - interval '3 seconds'");
  const lost = desk(() => Promise.reject(new Error('lost')));
  assert.equal(await elsewhere().runNow(claim), undefined);
  await lost.stop(0);
  assert.deepEqual(await states(), [['running', undefined]]);
});

test('a claim that lapsed, or is of another node by now, is not taken up', async () => {
  const claim = await begin();
  assert.equal((await takeClaim(bench.db, claim))?.id, claim.id);
  assert.equal(await takeClaim(bench.db, { id: claim.id, owner: crypto.randomUUID() }), undefined);
  await bench.db.query('update run set lease_until = clock_timestamp()');
  assert.equal(await takeClaim(bench.db, claim), undefined);
});

test('a run whose node could not report its outcome is reported as its row has it', async () => {
  const error = { code: 'function_threw', message: 'on purpose' };
  const endings: Ending[] = [
    { state: 'succeeded', output: Buffer.from('sealed') },
    { state: 'failed', error, mayPass: false },
    { state: 'cancelled', error },
  ];
  for (const ending of endings) {
    const claim = await begin();
    const failing = desk(async () => {
      await settle(bench.db, { claim, ending, now: bench.now(), random: 0 });
      throw new Error('lost');
    });
    assert.deepEqual(await elsewhere().runNow(claim), ending);
    await failing.stop(0);
  }
});

test('a run whose remote call was lost in a crash of the database continues, and its result is returned once it is over', async () => {
  const begun = Promise.withResolvers<void>();
  const isOver = Promise.withResolvers<void>();
  const claim = await begin();
  const ending: Ending = { state: 'succeeded', output: Buffer.from('sealed') };
  const going = desk(async (_request, { signal }) => {
    begun.resolve();
    await isOver.promise;
    assert.equal(signal.aborted, false);
    await settle(bench.db, { claim, ending, now: bench.now(), random: 0 });
    return Buffer.from('');
  });
  const asked = elsewhere().runNow(claim);
  await begun.promise;
  await bench.db.query('truncate errand');
  // The desk has looked after it.
  await pause(1_100);
  isOver.resolve();
  assert.deepEqual(await asked, ending);
  await going.stop(0);
});

test('a caller that hangs up while the state of a run is unknown ends the run', async () => {
  const claim = await begin();
  const gone = new AbortController();
  const lost = desk(() => Promise.reject(new Error('lost')));
  const asked = elsewhere().runNow(claim, gone.signal);
  await lost.stop(0);
  gone.abort();
  assert.equal((await asked)?.state, 'cancelled');
  assert.deepEqual(await states(), [['cancelled', 'cancelled']]);
});

test('a run that is taken back while the database answers for nothing is cancelled all the same', async (t) => {
  const cable = await openDatabaseCable(bench.target);
  const db = openDb(cable.target);
  t.after(async () => {
    await db.end();
    await cable.close();
  });
  const claim = await begin();
  const gone = new AbortController();
  const ending = elsewhere(undefined, db).runNow(claim, gone.signal);
  cable.loseAnswerTo('delete from errand');
  gone.abort();
  assert.equal((await ending)?.state, 'cancelled');
  assert.deepEqual(await states(), [['cancelled', 'cancelled']]);
});

test('a node that stops leaves a requested run to another node', async () => {
  const { vault, runtime, reader } = bench.one;
  const other = await bench.node();
  const kinds = remoteHandlers({
    db: bench.db,
    vault,
    runtime,
    reader,
    runner: other.runner,
    validate: async () => undefined,
  });
  await other.runner.stop(0);
  const claim = await begin();
  const request = asBytes({ id: claim.id, owner: claim.owner });
  const of = { environmentId: bench.environment.id, signal: new AbortController().signal };
  assert.equal(await kinds.run!(request, of), undefined);
  assert.equal((await takeClaim(bench.db, claim))?.id, claim.id);
});

const throws = `throw Object.assign(new Error('of an account'), { code: 'unavailable', payload: { of: 'a person' } });`;
const isSaidIn = (answer: Buffer) => /of an account|a person/.test(answer.toString());
function kindsOfOne(judged?: Ending) {
  const { vault, runtime, reader, runner } = bench.one;
  return remoteHandlers({ db: bench.db, vault, runtime, reader, runner, validate: async () => judged });
}
const elsewhereAsked = () => ({
  environmentId: bench.environment.id,
  signal: new AbortController().signal,
});

test('a thrown error is sealed on its way to the requesting node, which reports all of it', async () => {
  const answers: Buffer[] = [];
  const worker = desk(async (request, of) => {
    const answer = await kindsOfOne().run!(request, of);
    answers.push(answer!);
    return answer;
  });
  const ending = await elsewhere().runNow(await begin(throws));
  await worker.stop(0);
  assert.ok(ending?.state === 'failed');
  const { code, message, payload } = ending.error;
  assert.deepEqual([code, message, ending.mayPass], ['unavailable', 'of an account', true]);
  assert.deepEqual((payload as { payload: unknown }).payload, { of: 'a person' });
  assert.deepEqual(answers.map(isSaidIn), [false]);
});

test('nodes of the previous version request and report plain errors', async () => {
  const claim = await begin(throws);
  const answer = await kindsOfOne().run!(asBytes({ id: claim.id, owner: claim.owner }), elsewhereAsked());
  assert.ok(isSaidIn(answer!));
  const worker = desk(async () => answer);
  const ending = await elsewhere().runNow(await begin());
  await worker.stop(0);
  assert.deepEqual({ ending }, JSON.parse(answer!.toString()));
});

test('what code threw of a candidate is sealed on its way', async () => {
  const code = `exports.default = { type: 'onEvent', event: 'validate-connection', description: '', async exec() {} };`;
  await bench.deploy('validate', code, 'on_event');
  const found = await getFunction(bench.db, { ...bench.place, name: 'validate' });
  const threw: Ending = {
    state: 'failed',
    error: { code: 'function_threw', message: 'of an account', payload: { name: 'Error' } },
    mayPass: false,
  };
  const answers: Buffer[] = [];
  const validate = validateRemotely({
    db: bench.db,
    vault: bench.one.vault,
    remoteCalls: {
      async ask({ request }) {
        answers.push((await kindsOfOne(threw).judge!(request, elsewhereAsked()))!);
        return { answer: answers[0]! };
      },
    },
  });
  const candidate = {
    integration: bench.integration,
    connectionId: 'new',
    credentials: { type: 'NONE' as const },
    connectionConfig: {},
    account: undefined,
    scopesGranted: undefined,
    metadata: {},
    tags: {},
    endUser: undefined,
    accessExpiresAt: undefined,
  };
  assert.deepEqual(await validate({ candidate, found }), threw);
  assert.deepEqual(answers.map(isSaidIn), [false]);
});
