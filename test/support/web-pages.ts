import assert from 'node:assert/strict';
import { createLog } from '../../server/log.ts';
import { createWebBuild } from '../../server/web-build.ts';
import { oneAtATime } from './database.ts';

/** Builds the pages where something in them is newer, as the service does: what one test file has built is there for the others. */
export function haveWebPages(): Promise<void> {
  return oneAtATime(async () => {
    const build = createWebBuild({ log: createLog({ level: 'warn', format: 'json' }) });
    build.start();
    await build.settled();
    assert.deepEqual(build.building(), { is: 'none' });
  });
}
