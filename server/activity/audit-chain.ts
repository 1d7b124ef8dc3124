/**
 * The chain of the audit log: each entry has a hash of itself and the chain before it. Made by the sequencer, and verified.
 */
import { createHash } from 'node:crypto';
import type { OutboxEntry } from '../db/dataset-outbox.ts';
import type { Db, Queryable, Tx } from '../db/pool.ts';
import { maxPlaced, placeAll, type Sequence } from '../db/sequencer.ts';
import type { RetainedTotals } from './audit.ts';

/** The columns of an entry that its chain covers. */
type ChainedEntry = {
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
const chainedColumns = `
  id,
  to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "createdAt",
  environment_id as "environmentId",
  actor,
  action,
  target,
  details`;

/** The chain before the first entry. */
const noChain: Buffer = Buffer.alloc(32);

/**
 * The text that is hashed: an object of all columns as JSON by RFC 8785 (no white space, names sorted), so that other
 * programs can produce it. It includes the position, so an entry that was moved does not match its chain.
 */
export function canonicalText(entry: ChainedEntry, position: number): string {
  const { id, createdAt, environmentId, actor, action, target, details } = entry;
  return canonicalJson({
    id,
    position,
    actor,
    action,
    target,
    details,
    created_at: createdAt,
    environment_id: environmentId,
  });
}

/** SHA-256 of the chain before, 32 bytes, followed by the text in UTF-8. */
function chainOf(before: Buffer, { entry, position }: { entry: ChainedEntry; position: number }): Buffer {
  return createHash('sha256').update(before).update(canonicalText(entry, position)).digest();
}

function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([name, one]) => `${JSON.stringify(name)}:${canonicalJson(one)}`).join(',')}}`;
}

/** The audit log's positions and chain: see `Sequence`. */
export const auditSequence: Sequence = {
  name: 'audit',
  async place(tx, { lastPosition, from, sent: read }) {
    const own = await tx.query<ChainedEntry>(
      `select ${chainedColumns}
       from audit
       where position is null and written_in >= $1::xid8
       order by audit.id
       limit $2
       for update skip locked`,
      [from, maxPlaced],
    );
    const sent = await findUncopied(tx, read);
    const waiting = inOrder(own, sent);
    const entries = waiting.splice(0, maxPlaced);
    const left = new Set(waiting.map(({ outboxId }) => outboxId));
    const copied = read.filter(({ id }) => !left.has(id));
    if (entries.length === 0) return { count: 0, isMore: read.length === maxPlaced, copied };
    let chain = (await headOf(tx)).chain;
    const placed = entries.map((entry, index) => {
      const position = lastPosition + 1 + index;
      chain = chainOf(chain, { entry, position });
      return { ...entry, position, chain };
    });
    await placeOwn(
      tx,
      placed.filter(({ outboxId }) => outboxId === undefined),
    );
    await copySent(
      tx,
      placed.filter(({ outboxId }) => outboxId !== undefined),
    );
    await addRetained(tx, entries);
    await tx.query(`update sequencer set chain = $1 where name = 'audit'`, [chain]);
    const isMore = entries.length === maxPlaced || read.length === maxPlaced;
    return { count: entries.length, isMore, copied };
  },
};

/** An entry of the outbox that is not in the log yet. */
type SentEntry = ChainedEntry & {
  outboxId: string;
  datasetId: number;
  retained: RetainedTotals | undefined;
};

/** Those of the outbox that are not in the log, with their ids in the log. */
async function findUncopied(tx: Tx, read: readonly OutboxEntry[]): Promise<SentEntry[]> {
  if (read.length === 0) return [];
  // The subquery cannot become a join with the whole log.
  const uncopied = await tx.query<{ outboxId: string; id: number }>(
    `select sent.id as "outboxId", nextval('audit_id_seq') as id
     from unnest($1::uuid[]) with ordinality as sent (id, n)
     where (select true from audit where outbox_id = sent.id) is null
     order by n`,
    [read.map(({ id }) => id)],
  );
  const byId = new Map(read.map((entry) => [entry.id, entry]));
  return uncopied.map(({ outboxId, id }) => {
    const { entry, writtenAt, datasetId } = byId.get(outboxId) as OutboxEntry;
    const { environment_id, retained, ...columns } = JSON.parse(entry) as SentColumns;
    const environmentId = environment_id ?? null;
    return { ...columns, id, createdAt: writtenAt, environmentId, outboxId, datasetId, retained };
  });
}

type SentColumns = Pick<ChainedEntry, 'actor' | 'action' | 'target' | 'details'> & {
  environment_id?: number | null;
  retained?: RetainedTotals;
};

/** Between entries from the outbox and others, the time decides: each has the latest time of those before it. */
function inOrder(
  own: readonly ChainedEntry[],
  sent: readonly SentEntry[],
): (ChainedEntry & { outboxId?: string })[] {
  const dated = [own, sent].flatMap((entries: readonly ChainedEntry[]) => {
    let latest = '';
    return entries.map((entry) => {
      if (entry.createdAt > latest) latest = entry.createdAt;
      return { entry, latest };
    });
  });
  return dated
    .sort((a, b) => (a.latest === b.latest ? a.entry.id - b.entry.id : a.latest < b.latest ? -1 : 1))
    .map(({ entry }) => entry);
}

async function placeOwn(tx: Tx, entries: readonly Placed[]): Promise<void> {
  if (entries.length === 0) return;
  await tx.query(
    `update audit
     set position = placed.position, chain = placed.chain
     from unnest($1::bigint[], $2::bigint[], $3::bytea[]) as placed (id, position, chain)
     where audit.id = placed.id`,
    [entries.map(({ id }) => id), entries.map(({ position }) => position), entries.map(({ chain }) => chain)],
  );
}

/** Copies entries of the outbox. The unique index of `outbox_id` is the last guard against a second copy. */
async function copySent(tx: Tx, entries: readonly (Placed & { outboxId?: string })[]): Promise<void> {
  if (entries.length === 0) return;
  await tx.query(
    `insert into audit
       (id, position, chain, environment_id, actor, action, target, details, created_at, outbox_id)
     overriding system value
     select *
     from unnest(
       $1::bigint[], $2::bigint[], $3::bytea[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::jsonb[],
       $9::timestamptz[], $10::uuid[]
     )`,
    [
      entries.map(({ id }) => id),
      entries.map(({ position }) => position),
      entries.map(({ chain }) => chain),
      entries.map(({ environmentId }) => environmentId),
      entries.map(({ actor }) => actor),
      entries.map(({ action }) => action),
      entries.map(({ target }) => target),
      entries.map(({ details }) => JSON.stringify(details)),
      entries.map(({ createdAt }) => createdAt),
      entries.map(({ outboxId }) => outboxId),
    ],
  );
}

/** Adds up what steps of retention have removed, until a report takes the sums. */
async function addRetained(tx: Tx, entries: readonly Partial<SentEntry>[]): Promise<void> {
  const retained = entries.filter((entry) => entry.retained !== undefined && entry.environmentId !== null);
  if (retained.length === 0) return;
  await tx.query(
    `insert into retained (environment_id, dataset_id, payloads, bytes, tombstones)
     select environment_id, dataset_id, sum(payloads), sum(bytes), sum(tombstones)
     from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
       as step (environment_id, dataset_id, payloads, bytes, tombstones)
     where exists (select from environment where environment.id = step.environment_id)
     group by environment_id, dataset_id
     on conflict on constraint retained_pkey do update
     set
       payloads = retained.payloads + excluded.payloads,
       bytes = retained.bytes + excluded.bytes,
       tombstones = retained.tombstones + excluded.tombstones`,
    [
      retained.map(({ environmentId }) => environmentId),
      retained.map(({ datasetId }) => datasetId),
      retained.map(({ retained: totals }) => totals?.payloads),
      retained.map(({ retained: totals }) => totals?.bytes),
      retained.map(({ retained: totals }) => totals?.tombstones),
    ],
  );
}

/** Waits until everything that was committed before the call is in the chain; false if that takes seconds. */
export async function chainAll(db: Db): Promise<boolean> {
  return placeAll(db, auditSequence);
}

/** Position and chain of the latest entry, as the sequencer has them. */
export async function headOf(tx: Queryable | Tx): Promise<{ position: number; chain: Buffer }> {
  const [head] = await tx.query<{ position: number; chain: Buffer | null }>(
    `select last_position as position, chain
     from sequencer
     where name = 'audit'`,
  );
  return { position: head?.position ?? 0, chain: head?.chain ?? noChain };
}

/** The result of a check: each entry must follow from the one before, from the first one to the head. */
export type AuditVerdict = {
  /** The number of entries that are proven: all up to the fault, if there is one. */
  proven: number;
  /** Entries that the sequencer has not placed yet, of the last moments. */
  waiting: number;
  /** The last proven entry: keep it elsewhere, and pass it to a later check. */
  head: { position: number; chain: string };
  fault: AuditFault | undefined;
};

type AuditFault = {
  kind: 'changed' | 'removed' | 'reordered' | 'inserted';
  /** The first position where the chain breaks. */
  position: number;
  message: string;
};

type Placed = ChainedEntry & { position: number; chain: Buffer };

const page = 2_000;
/** This number of entries may be missing in the middle, with their followers moved up, and is reported. */
const maxMissing = 1_000;

/**
 * Reads the whole log in one snapshot. `kept` is the head of an earlier check. With it the check also finds a log whose
 * end was cut off, and a log that was rewritten from some position on.
 */
export async function verifyAudit(
  db: Db,
  {
    kept,
    onProgress = () => {},
  }: {
    kept?: { position: number; chain: string } | undefined;
    onProgress?: (progress: { proven: number; total: number }) => void;
  } = {},
): Promise<AuditVerdict> {
  return db.transaction(async (tx) => {
    const head = await headOf(tx);
    const sent = await tx.query<{ id: string }>(`select id from dataset_outbox where sequence = 'audit'`);
    const [waiting] = await tx.query<{ count: number }>(
      `select count(*) as count
       from (
         select from audit where position is null
         union all
         select
         from unnest($1::uuid[]) as sent (id)
         where (select true from audit where outbox_id = sent.id) is null
       ) as entry`,
      [sent.map(({ id }) => id)],
    );
    let proven = 0;
    let chain = noChain;
    let fault: AuditFault | undefined;
    let keptChain: Buffer | undefined;
    read: for await (const entries of pagesOf(tx)) {
      for (const entry of entries) {
        const position = proven + 1;
        if (entry.position !== position || entry.position > head.position) {
          fault = await explain(tx, { entry, position, before: chain, last: head.position });
          break read;
        }
        const follows = chainOf(chain, { entry, position });
        if (!follows.equals(entry.chain)) {
          fault = await explain(tx, { entry, position, before: chain, last: head.position });
          break read;
        }
        chain = follows;
        proven = position;
        if (kept?.position === position) keptChain = chain;
      }
      onProgress({ proven, total: head.position });
    }
    fault ??= faultOfHead({ proven, chain, head }) ?? faultOfKept({ kept, proven, keptChain });
    return {
      proven,
      waiting: waiting?.count ?? 0,
      head: { position: proven, chain: chain.toString('hex') },
      fault,
    };
  }, 'snapshot');
}

function faultOfHead({
  proven,
  chain,
  head,
}: {
  proven: number;
  chain: Buffer;
  head: { position: number; chain: Buffer };
}): AuditFault | undefined {
  if (proven < head.position) return missing(proven + 1, head.position);
  if (chain.equals(head.chain)) return undefined;
  return {
    kind: 'changed',
    position: proven,
    message: 'the last entry of the log does not match the recorded last entry: the log was rewritten',
  };
}

function faultOfKept({
  kept,
  proven,
  keptChain,
}: {
  kept: { position: number; chain: string } | undefined;
  proven: number;
  keptChain: Buffer | undefined;
}): AuditFault | undefined {
  if (kept === undefined || kept.position === 0) return undefined;
  if (kept.position > proven) return missing(proven + 1, kept.position);
  if (keptChain?.toString('hex') === kept.chain) return undefined;
  return {
    kind: 'changed',
    position: kept.position,
    message:
      'the hash differs from the kept hash: an entry up to this position was changed, and the log was rewritten',
  };
}

function missing(from: number, to: number): AuditFault {
  const message = from === to ? 'this entry is missing' : `the entries from here to ${to} are missing`;
  return { kind: 'removed', position: from, message };
}

/** The fault at `position`, where `entry` stands; all entries before it are proven, and `before` is their chain. */
async function explain(
  tx: Tx,
  { entry, position, before, last }: { entry: Placed; position: number; before: Buffer; last: number },
): Promise<AuditFault> {
  if (position > last) {
    return {
      kind: 'inserted',
      position,
      message: `the log ends at ${last}: this entry was added after its end`,
    };
  }
  if (entry.position < position) {
    return { kind: 'inserted', position, message: `position ${entry.position} has more than one entry` };
  }
  const belongs = await findBelonging(tx, { entry, position, before });
  if (belongs !== undefined) {
    const { real, chain } = belongs;
    const isPushed = await isInserted(tx, { entry, real, position, chain });
    if (isPushed) {
      const count = real.position - position;
      const which = count <= 1 ? 'this entry was' : `the entries from here to ${real.position - 1} were`;
      return {
        kind: 'inserted',
        position,
        message: `${which} inserted: the entry that belongs here is at ${real.position}`,
      };
    }
    return {
      kind: 'reordered',
      position,
      message: `the entry that belongs here is at ${real.position}`,
    };
  }
  if (entry.position > position) return missing(position, entry.position - 1);
  const [next] = await readFrom(tx, { after: position, max: 1 });
  for (let count = 1; next !== undefined && count <= maxMissing; count += 1) {
    const isMovedUp = chainOf(entry.chain, { entry: next, position: next.position + count }).equals(
      next.chain,
    );
    if (!isMovedUp) continue;
    const which = count === 1 ? 'the entry here is' : `${count} entries from here are`;
    return { kind: 'removed', position, message: `${which} missing, and the later entries were moved up` };
  }
  return {
    kind: 'changed',
    position,
    message: 'this entry was changed: its content, its hash, or the hash before it',
  };
}

/** The entry that follows `before` at this position, wherever it stands now. */
async function findBelonging(
  tx: Tx,
  { entry, position, before }: { entry: Placed; position: number; before: Buffer },
): Promise<{ real: Placed; chain: Buffer } | undefined> {
  for await (const others of pagesOf(tx, position - 1)) {
    for (const real of others) {
      if (real.id === entry.id) continue;
      const chain = chainOf(before, { entry: real, position });
      // It may have been moved with its hash, or the contents alone.
      if (chain.equals(real.chain) || chain.equals(entry.chain)) return { real, chain };
    }
  }
  return undefined;
}

/** Whether the entry before the one that belongs here was inserted, and was not only moved. */
async function isInserted(
  tx: Tx,
  { entry, real, position, chain }: { entry: Placed; real: Placed; position: number; chain: Buffer },
): Promise<boolean> {
  if (real.position === position) return true;
  if (real.position < position || entry.position > position) return false;
  const [next] = await readFrom(tx, { after: real.position, max: 1 });
  if (next !== undefined) {
    return chainOf(chain, { entry: next, position: position + 1 }).equals(next.chain);
  }
  // The last one: of two that changed places the other one belongs there.
  const other = chainOf(chain, { entry, position: real.position });
  return !other.equals(entry.chain) && !other.equals(real.chain);
}

async function* pagesOf(tx: Tx, from = 0): AsyncGenerator<Placed[]> {
  for (let after = from; ; ) {
    const entries = await readFrom(tx, { after, max: page });
    yield entries;
    const last = entries.at(-1);
    if (last === undefined || entries.length < page) return;
    after = last.position;
  }
}

function readFrom(tx: Tx, { after, max }: { after: number; max: number }): Promise<Placed[]> {
  return tx.query<Placed>(
    `select ${chainedColumns}, position, coalesce(chain, '') as chain
     from audit
     where position > $1
     order by position, audit.id
     limit $2`,
    [after, max],
  );
}
