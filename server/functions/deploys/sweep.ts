import type { Db } from '../../db/pool.ts';
import type { Job } from '../../jobs/jobs.ts';

const hourMs = 3_600_000;
/** The maximum number of rows in one transaction. */
const step = 100;

/**
 * Deletes bundles that no version references. A bundle of a deploy that is under way stays: it was touched within the last
 * hour.
 */
export function bundleSweepJob({ db, now }: { db: Db; now: () => Date }): Job<Record<string, never>> {
  return {
    name: 'functions.bundles',
    async run(_, signal) {
      const before = new Date(now().getTime() - hourMs);
      let removed: number;
      do {
        removed = (await db.query(removeUnreferenced, [before, step])).length;
      } while (removed === step && !signal.aborted);
    },
  };
}

const removeUnreferenced = `
  delete from function_bundle
  where touched_at < $1
    and id in (
      select bundle.id
      from function_bundle bundle
      where bundle.touched_at < $1
        and not exists (select from function_version version where version.bundle_id = bundle.id)
      order by bundle.id
      limit $2
      for update skip locked
    )
  returning id`;
