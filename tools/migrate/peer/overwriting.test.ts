import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import type { OAuth2Credentials } from '../../../server/auth-modes/oauth2-credentials.ts';
import { openKept } from '../../../server/connections/refresh/previous-refresh-tokens.ts';
import { destroyConnection } from '../../../server/connections/store/save.ts';
import type { PeerStandIn } from '../../../test/support/peer.ts';
import { peerConnection } from '../../../test/support/peer-bodies.ts';
import { type Installation, type Move, openMove, outcomesOf, renewHere } from '../migrate.fixture.ts';
import { linesOf, type Report } from '../report.ts';
import { type PeerRun, runPeer, tryPeerRun } from './run.ts';

let move: Move;
let peer: PeerStandIn;
let here: Installation;
beforeEach(async () => {
  move = await openMove('google-sheet');
  ({ peer, here } = move);
});
afterEach(() => move.close());

const run = async (more: Partial<PeerRun> = {}): Promise<Report> => (await runPeer(move.open(more))).report;
const dry = async (more: Partial<PeerRun> = {}): Promise<Report> =>
  (await tryPeerRun(move.open(more))).report;

/** A run that is killed when it tells this of its progress. */
async function cutOffAt(said: string, overwrites: boolean): Promise<void> {
  const onProgress = (text: string) => {
    if (text.startsWith(said)) throw new Error('killed');
  };
  await assert.rejects(run({ overwrites, parallel: 1, onProgress }), /killed/);
}

test('existing connections are kept unless the run overwrites, and a used token is not restored', async () => {
  const ada = peerConnection({ id: 'ada', integration: 'google-sheet' });
  peer.connections.push(ada);
  await run();
  await here.db.query('delete from import');
  const before = await here.find('google-sheet', 'ada');
  ada.credentials.access_token = 'another-access-token';
  ada.metadata = { plan: 'new' };
  const { reads } = ada;
  assert.deepEqual(outcomesOf(await run()), { existing: 1 });
  assert.equal(ada.reads, reads);
  assert.deepEqual(await here.find('google-sheet', 'ada'), before);

  assert.deepEqual(outcomesOf(await run({ overwrites: true })), { overwritten: 1 });
  const after = (await here.find('google-sheet', 'ada'))!;
  assert.equal((after.credentials as { access_token: string }).access_token, 'another-access-token');
  assert.deepEqual(after.metadata, { plan: 'new' });
  assert.deepEqual(after.createdAt, before!.createdAt);

  // It was renewed here since: what the peer holds is the token before.
  await here.db.query('delete from import');
  const kept = [String(ada.credentials.refresh_token)];
  const renewed = await renewHere(here, { at: ['google-sheet', 'ada'], kept });
  ada.credentials.access_token = 'a-third-access-token';
  ada.credentials.expires_at = new Date(Date.now() + 7_200_000).toISOString();
  ada.metadata = { plan: 'newer' };
  assert.deepEqual(outcomesOf(await run({ overwrites: true })), { 'overwritten credentials_kept': 1 });
  const { updatedAt, metadata, ...rest } = (await here.find('google-sheet', 'ada'))!;
  assert.deepEqual({ ...rest, updatedAt: renewed.updatedAt, metadata: renewed.metadata }, renewed);
  assert.deepEqual(metadata, { plan: 'newer' });
  assert.ok(updatedAt > renewed.updatedAt);
  const [row] = await here.db.query<{ kept: Buffer }>('select kept_tokens as kept from connection');
  assert.deepEqual(openKept(renewed, row!.kept), kept);
});

test('an interrupted run that overwrites continues with the remaining connections', async () => {
  for (let n = 0; n < 12; n += 1)
    peer.connections.push(peerConnection({ id: `c${n}`, integration: 'google-sheet' }));
  await run();
  await cutOffAt('5 of 12', true);
  const stored = await here.db.query<{ id: string }>(
    `select connection as id from imported_connection where outcome = 'overwritten' order by connection`,
  );
  assert.equal(stored.length, 5);
  const [renewed, deleted] = stored.map(({ id }) => id) as [string, string];
  // Those of its tokens that the peer has are used up, and no longer known here.
  const before = await renewHere(here, { at: ['google-sheet', renewed], kept: [] });
  const gone = (await here.find('google-sheet', deleted))!;
  await here.db.transaction((tx) => destroyConnection(tx, { id: gone.id, at: new Date() }));
  const reads = () => peer.connections.map((one) => one.reads);
  const [readBefore, { connections }] = [reads(), await dry({ overwrites: true })];
  assert.deepEqual(outcomesOf({ connections }), { overwritten: 4, removed: 1, to_import: 7 });
  await cutOffAt('8 of 12', true);
  assert.deepEqual(outcomesOf(await run({ overwrites: true })), { overwritten: 11, removed: 1 });
  assert.deepEqual(await here.find('google-sheet', renewed), before);
  for (const { id } of stored) {
    const index = peer.connections.findIndex((one) => one.id === id);
    assert.equal(reads()[index], readBefore[index], id);
  }
});

test('a run that overwrites does not continue one that did not, nor the reverse', async () => {
  for (let n = 0; n < 6; n += 1)
    peer.connections.push(peerConnection({ id: `c${n}`, integration: 'google-sheet' }));
  await cutOffAt('3 of 6', false);
  // It goes on in production there, and renews every token.
  for (const one of peer.connections)
    one.credentials = { ...one.credentials, refresh_token: `renewed-of-${one.id}` };
  const [stored] = await here.db.query<{ id: string }>('select connection_id as id from connection');
  const gone = (await here.find('google-sheet', stored!.id))!;
  await here.db.transaction((tx) => destroyConnection(tx, { id: gone.id, at: new Date() }));
  assert.deepEqual(outcomesOf(await dry({ overwrites: true })), { to_import: 6 });
  await cutOffAt('5 of 6', true);
  assert.deepEqual(outcomesOf(await run({ overwrites: true })), { made: 4, overwritten: 2 });
  for (const { id, credentials } of peer.connections) {
    const found = (await here.credentialsOf('google-sheet', id)) as OAuth2Credentials;
    assert.equal(found.refresh_token, credentials.refresh_token, id);
  }

  // One that does not overwrite reads none of those that are here.
  await cutOffAt('2 of 6', true);
  const reads = peer.connections.map((one) => one.reads);
  assert.deepEqual(outcomesOf(await run()), { made: 3, overwritten: 3 });
  assert.deepEqual(
    peer.connections.map((one) => one.reads),
    reads,
  );
});

test('connections created locally since stay if the same peer has another address', async () => {
  const ada = peerConnection({ id: 'ada', integration: 'google-sheet' });
  peer.connections.push(ada);
  await run();
  const renewed = await renewHere(here, { at: ['google-sheet', 'ada'], kept: [] });
  const other = move.open().peer;
  const byOther = { peer: { ...other, url: `${other.url}/other` }, overwrites: true };
  for (let times = 0; times < 2; times += 1)
    assert.deepEqual(outcomesOf(await run(byOther)), { 'overwritten credentials_kept': 1 });
  assert.deepEqual(await here.credentialsOf('google-sheet', 'ada'), renewed.credentials);
});

test('a replaced token is deleted, since its owner is unknown', async () => {
  const ada = peerConnection({ id: 'ada', integration: 'google-sheet' });
  peer.connections.push(ada);
  await run();
  ada.credentials = { ...ada.credentials, refresh_token: 'of-another-account' };
  assert.deepEqual(outcomesOf(await run({ overwrites: true })), { overwritten: 1 });
  assert.deepEqual(await here.db.query('select kept_tokens as kept from connection'), [{ kept: null }]);
});

test('connections changed after the import stay in every run, except those that need reauthorization', async () => {
  const ada = peerConnection({ id: 'ada', integration: 'google-sheet' });
  peer.connections.push(ada);
  await run();
  const renewed = await renewHere(here, { at: ['google-sheet', 'ada'], kept: [] });
  for (let times = 0; times < 2; times += 1) {
    const report = await run({ overwrites: true });
    assert.deepEqual(outcomesOf(report), { 'overwritten credentials_kept': 1 });
    assert.match(
      linesOf(report).join('\n'),
      /^1 connections .* except for credentials: .* newer \(credentials_kept\)$/m,
    );
  }
  assert.deepEqual(await here.credentialsOf('google-sheet', 'ada'), renewed.credentials);

  await here.db.query(`update connection set status = 'needs_reauth'`);
  assert.deepEqual(outcomesOf(await run({ overwrites: true })), { overwritten: 1 });
  const { status, credentials } = (await here.find('google-sheet', 'ada'))!;
  assert.equal(status, 'active');
  assert.equal((credentials as { refresh_token: string }).refresh_token, ada.credentials.refresh_token);
});
