import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { installRelease, upgradeFrom } from '../support/previous-release.ts';
import { upgradeUnderLoad } from './upgrade.ts';

test(`two nodes of ${upgradeFrom} become two of this version, and no call fails while they are replaced`, async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'trellis-previous-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const release = installRelease(join(directory, 'release'));
  if (release.missing !== undefined) return t.skip(release.missing);
  const { calls, again, failed } = await upgradeUnderLoad({ main: release.main, count: 100 });
  t.diagnostic(`calls: ${JSON.stringify(calls)}, made again after a 503: ${again}`);
  assert.deepEqual(failed, []);
});
