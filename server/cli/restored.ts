import { parseArgs } from 'node:util';
import { raisePositions, raisePositionsOnce } from '../backup/positions.ts';
import { loadConfigWithoutKeys } from '../config/config.ts';
import { withDatabase } from './reach-database.ts';

/** `trellis restored`: for who has restored a database by other means, or failed over and may have lost commits. */
export async function restoredCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({ args, options: { again: { type: 'boolean', default: false } } });
  return withDatabase(loadConfigWithoutKeys(), async (db) => {
    const raised = await (values.again ? raisePositions : raisePositionsOnce)(db);
    if ('raisedAt' in raised) {
      console.error(
        `This was done at ${raised.raisedAt.toISOString()}, and no position was given out since: nothing was changed. ` +
          'Where the database went back in time once more since then, say --again.',
      );
      return 1;
    }
    console.log(
      `positions of ${raised.datasets} datasets and of the feed raised; all users must sign in again`,
    );
    return 0;
  });
}
