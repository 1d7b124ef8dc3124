import assert from 'node:assert/strict';
import {
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { exchangeCluster, hasEmbedded, lockServerDir } from './server-dir.ts';

const dataDir = realpathSync(mkdtempSync(path.join(tmpdir(), 'trellis-server-dir-')));
after(() => rmSync(dataDir, { recursive: true }));
const clusterDir = path.join(dataDir, 'postgres/data');

/** A directory where a cluster would be, with a file that says which it is. */
function put(dir: string, name: string): void {
  mkdirSync(dir, { recursive: true });
  writeFileSync(path.join(dir, name), '');
  // PostgreSQL does not run as root, and whose the directory is says as whom it runs.
  if (process.getuid?.() === 0) chownSync(dir, 65_534, 65_534);
}
const take = async () => (await lockServerDir({ dataDir, log: () => {} })).release();

test('an exchange of clusters keeps the old one, and the next process ends one that was broken off', async () => {
  put(clusterDir, 'old');
  put(path.join(dataDir, 'postgres/draft-x'), 'new');
  const kept = `${clusterDir}.17.old`;
  exchangeCluster(clusterDir, { draft: path.join(dataDir, 'postgres/draft-x'), kept });
  assert.deepEqual([readdirSync(clusterDir), readdirSync(kept)], [['new'], ['old']]);

  // Killed between the two names: without the second step a start would make an empty database.
  rmSync(clusterDir, { recursive: true });
  put(`${clusterDir}.next`, 'newer');
  assert.equal(hasEmbedded(dataDir), true);
  await take();
  assert.deepEqual(readdirSync(clusterDir), ['newer']);

  // Killed before the first: what stands there is the database.
  put(`${clusterDir}.next`, 'never');
  await take();
  assert.deepEqual(readdirSync(clusterDir), ['newer']);
  assert.equal(existsSync(`${clusterDir}.next`), false);
});
