import { createHash } from 'node:crypto';
import { type Db, first, type Queryable, type Tx } from '../db/pool.ts';
import { placeAll, type Sequence } from '../db/sequencer.ts';

/** What the chain of an entry says something of. */
export type ChainedEntry = {
  id: number;
  /** UTC, to the microsecond: `2026-01-31T12:00:00.000001Z`. */
  createdAt: string;
  environmentId: number | null;
  actor: string;
  action: string;
  target: string;
  details: unknown;
};

/** The columns of `audit` in the form of a `ChainedEntry`. */
export const chainedColumns = `
  id,
  to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "createdAt",
  environment_id as "environmentId",
  actor,
  action,
  target,
  details`;

/** What the first entry is chained to. */
export const noChain: Buffer = Buffer.alloc(32);

/**
 * The text that is hashed: an object of all columns as JSON by RFC 8785 (no white space, names sorted), so that anybody
 * can write it again. The position is part of it: an entry that is moved is no longer the one that was chained.
 */
export function canonicalText(entry: ChainedEntry, position: number): string {
  const { id, createdAt, environmentId, actor, action, target, details } = entry;
  return canonicalJson({
    ...{ id, position, actor, action, target, details },
    created_at: createdAt,
    environment_id: environmentId,
  });
}

/** SHA-256 of the chain before, 32 bytes, followed by the text in UTF-8. */
export function chainOf(
  before: Buffer,
  { entry, position }: { entry: ChainedEntry; position: number },
): Buffer {
  return createHash('sha256').update(before).update(canonicalText(entry, position)).digest();
}

function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([name, one]) => `${JSON.stringify(name)}:${canonicalJson(one)}`).join(',')}}`;
}

/** Entries of one step. */
const maxChained = 1_000;

/** The audit log's positions and chain: see `Sequence`. */
export const auditSequence: Sequence = {
  name: 'audit',
  async place(tx, { lastPosition, from }) {
    const entries = await tx.query<ChainedEntry>(
      `select ${chainedColumns}
       from audit
       where position is null and written_in >= $1::xid8
       order by audit.id
       limit $2
       for update skip locked`,
      [from, maxChained],
    );
    if (entries.length === 0) return { count: 0, isMore: false };
    let chain = (await headOf(tx)).chain;
    const chains: Buffer[] = [];
    for (const [index, entry] of entries.entries()) {
      chain = chainOf(chain, { entry, position: lastPosition + 1 + index });
      chains.push(chain);
    }
    await tx.query(
      `update audit
       set position = $1 + placed.rank, chain = placed.chain
       from unnest($2::bigint[], $3::bytea[]) with ordinality as placed (id, chain, rank)
       where audit.id = placed.id`,
      [lastPosition, entries.map(({ id }) => id), chains],
    );
    await tx.query(`update sequencer set chain = $1 where name = 'audit'`, [chain]);
    return { count: entries.length, isMore: entries.length === maxChained };
  },
};

/** Until what was committed before the call stands in the chain; false where that is held up for seconds. */
export async function chainAll(db: Db): Promise<boolean> {
  return placeAll(db, auditSequence);
}

/** Position and chain of the latest entry, as the sequencer remembers them. */
export async function headOf(tx: Queryable | Tx): Promise<{ position: number; chain: Buffer }> {
  const head = first(
    await tx.query<{ position: number; chain: Buffer | null }>(
      `select last_position as position, chain
       from sequencer
       where name = 'audit'`,
    ),
  );
  return { position: head?.position ?? 0, chain: head?.chain ?? noChain };
}
