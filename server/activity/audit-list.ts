import { type Db, tables } from '../db/pool.ts';
import { chainAll } from './audit-chain.ts';

type AuditFilter = {
  /** Undefined: the entries that belong to none. */
  readonly environmentId: number | undefined;
  readonly actor?: string | undefined;
  readonly action?: string | undefined;
  readonly target?: string | undefined;
  /** Inclusive. */
  readonly from?: Date | undefined;
  /** Exclusive. */
  readonly to?: Date | undefined;
};

/**
 * Newest first, by position; those before the position `before`, where it is given. What was committed before the call is
 * there, unless a node that froze holds it up for seconds.
 */
export async function listAudit(
  db: Db,
  { filter, before, limit }: { filter: AuditFilter; before?: number | undefined; limit: number },
) {
  await chainAll(db);
  const { environmentId, actor, action, target, from, to } = filter;
  let rows = tables
    .selectFrom('audit')
    .select(['position', 'created_at', 'actor', 'action', 'target', 'details'])
    .where((either) =>
      environmentId === undefined
        ? // What was done in an environment that was deleted since belongs to none.
          either.or([
            either('environment_id', 'is', null),
            either('environment_id', 'not in', tables.selectFrom('environment').select('id')),
          ])
        : either('environment_id', '=', environmentId),
    )
    .where('position', 'is not', null)
    .orderBy('position', 'desc')
    .limit(limit);
  if (before !== undefined) rows = rows.where('position', '<', before);
  if (actor !== undefined) rows = rows.where('actor', '=', actor);
  if (action !== undefined) rows = rows.where('action', '=', action);
  if (target !== undefined) rows = rows.where('target', '=', target);
  if (from !== undefined) rows = rows.where('created_at', '>=', from);
  if (to !== undefined) rows = rows.where('created_at', '<', to);
  return db.run(rows.$narrowType<{ position: number }>());
}
