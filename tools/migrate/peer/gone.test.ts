import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { destroyConnection } from '../../../server/connections/store/save.ts';
import type { PeerStandIn } from '../../../test/support/peer.ts';
import { peerConnection } from '../../../test/support/peer-bodies.ts';
import { type Installation, type Move, openMove, outcomesOf } from '../migrate.fixture.ts';
import { isWhole, linesOf, reportText } from '../report.ts';
import { type PeerRun, runPeer, tryPeerRun } from './run.ts';

let move: Move;
let peer: PeerStandIn;
let here: Installation;
beforeEach(async () => {
  move = await openMove('sheets');
  ({ peer, here } = move);
});
afterEach(() => move.close());

const run = (more: Partial<PeerRun> = {}) => runPeer(move.open(more));

async function notWholeOf(reported: Awaited<ReturnType<typeof run>>) {
  const text = (await Array.fromAsync(reportText(here.db, [reported]))).join('');
  const { not_whole: open } = JSON.parse(text) as { not_whole: Record<string, string>[] };
  return open.map(({ connection_id: id, outcome, reason }) => [id, outcome, reason]);
}

test('connections deleted at the peer are reported, named if they still exist locally, and their records are not requested', async () => {
  peer.connections = ['ada', 'bob', 'bad'].map((id) => peerConnection({ id, integration: 'sheets' }));
  peer.connections[2]!.tags = { end_user_email: 'nobody' };
  assert.deepEqual(outcomesOf((await run()).report), { 'failed invalid': 1, made: 2 });
  const [ada, bob] = peer.connections;
  peer.connections = [ada!];
  const gone = { gone: 1, 'gone still_here': 1 };
  const { report: dry } = await tryPeerRun(move.open());
  assert.deepEqual(outcomesOf(dry), { ...gone, made: 1 });
  assert.match(dry.next_steps.join('\n'), /not in this installation: sheets\/bob\./);

  for (const overwrites of [false, true]) {
    const records = { models: undefined, positions: new Map(), consumer: 'app' };
    const reported = await run({ overwrites, records });
    const { report } = reported;
    assert.deepEqual(outcomesOf(report), { ...gone, [overwrites ? 'overwritten' : 'made']: 1 });
    assert.deepEqual(report.records!.failed, []);
    assert.ok(isWhole(report));
    assert.match(
      linesOf(report).join('\n'),
      /^1 connections no longer exist at the source; the imported connections still exist/m,
    );
    assert.match(
      report.next_steps.join('\n'),
      /not in this installation: sheets\/bob\. Delete these connections/,
    );
    assert.deepEqual(await notWholeOf(reported), [
      ['bad', 'gone', null],
      ['bob', 'gone', 'still_here'],
    ]);
  }
  assert.equal((await here.find('sheets', 'bob'))?.status, 'active');

  // It is there again.
  peer.connections.push(bob!);
  assert.deepEqual(outcomesOf((await run()).report), { existing: 1, gone: 1, overwritten: 1 });
});

for (const { of, gone, isDoubted } of [
  { of: 3, gone: 2, isDoubted: false },
  { of: 6, gone: 5, isDoubted: false },
  { of: 7, gone: 6, isDoubted: true },
  { of: 1, gone: 1, isDoubted: true },
])
  test(`${gone} of ${of} missing connections are ${isDoubted ? 'not accepted until they are deleted locally' : 'accepted'}`, async () => {
    for (let n = 0; n < of; n += 1)
      peer.connections.push(peerConnection({ id: `c${n}`, integration: 'sheets' }));
    await run();
    const left = peer.connections.splice(gone);
    const deleted = peer.connections;
    peer.connections = left;
    const { report } = await run();
    assert.deepEqual([report.doubts.length > 0, isWhole(report)], [isDoubted, !isDoubted]);
    assert.equal(/Delete these connections/.test(report.next_steps.join()), !isDoubted);

    for (const { id } of deleted) {
      const { id: row } = (await here.find('sheets', id))!;
      await here.db.transaction((tx) => destroyConnection(tx, { id: row, at: new Date() }));
    }
    const { report: after } = await run();
    assert.deepEqual([after.doubts, isWhole(after)], [[], true]);
  });

test('a connection deleted between the list and its read is named, too', async () => {
  const ada = peerConnection({ id: 'ada', integration: 'sheets' });
  peer.connections = [ada];
  await run();
  peer.trouble = (_, path) => {
    if (path === '/connections/ada') peer.connections = [];
    return undefined;
  };
  const { report } = await run({ overwrites: true });
  assert.deepEqual(outcomesOf(report), { 'gone still_here': 1 });
});

test('an incomplete list is not used to find missing connections', async () => {
  for (let n = 0; n < 20; n += 1)
    peer.connections.push(peerConnection({ id: `c${n}`, integration: 'sheets' }));
  await run();
  peer.beforeList = (page) => {
    peer.trouble = (_, path) => (page === 0 && path === '/connections' ? 'fail' : undefined);
  };
  await assert.rejects(run({ pageSize: 10 }), /503/);
  assert.equal(await here.count(`imported_connection where outcome = 'gone'`), 0);
});

test('the share of missing connections counts only the requested integrations', async () => {
  peer.integrations.push({ key: 'exotic', provider: 'exotic-crm', authMode: 'TWO_STEP', credentials: null });
  peer.connections = [
    peerConnection({ id: 'ada', integration: 'sheets' }),
    peerConnection({ id: 'odd', integration: 'exotic' }),
  ];
  assert.ok(!isWhole((await run()).report));
  const reported = await run({ filter: new Set(['sheets']) });
  assert.deepEqual(outcomesOf(reported.report), { made: 1 });
  assert.ok(isWhole(reported.report));
  assert.deepEqual(await notWholeOf(reported), []);
  // What was not asked for is not looked for.
  assert.deepEqual(outcomesOf((await run()).report), { made: 1, 'skipped unknown_provider': 1 });
});

test('a connection that no import created is not reported as still existing, even with the same ID', async () => {
  const [ada, bob] = ['ada', 'bob'].map((id) => peerConnection({ id, integration: 'sheets' }));
  peer.connections = [bob!];
  await run();
  peer.connections = [ada!, bob!];
  await here.db.query(`update connection set connection_id = 'ada' where connection_id = 'bob'`);
  const { report } = await run();
  assert.deepEqual(outcomesOf(report), { existing: 1, removed: 1 });
  peer.connections = [];
  const { report: after } = await run();
  assert.deepEqual(after.next_steps.join('\n').match(/not in this installation: .*\./)?.[0], undefined);
});
