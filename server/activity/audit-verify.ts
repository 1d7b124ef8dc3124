import type { Db, Tx } from '../db/pool.ts';
import { type ChainedEntry, chainedColumns, chainOf, headOf, noChain } from './audit-chain.ts';

/**
 * Whether the audit log is what was written: from the first entry to the head each follows from the one before.
 *
 * Owns: reading the chain, and naming the first place where it breaks. Does not own: how it is made (`audit-chain.ts`).
 */
export type AuditVerdict = {
  /** How many entries are proven: all up to the fault, where there is one. */
  proven: number;
  /** Entries that the sequencer has not placed yet, of the last moments. */
  waiting: number;
  /** Of the last entry that is proven: to be kept elsewhere, and given to a later check. */
  head: { position: number; chain: string };
  fault: AuditFault | undefined;
};

type AuditFault = {
  kind: 'changed' | 'removed' | 'reordered' | 'inserted';
  /** The first place where it breaks. */
  position: number;
  message: string;
};

type Placed = ChainedEntry & { position: number; chain: Buffer };

const page = 2_000;
/** So many entries may be missing from the middle, their followers moved up, and be told by their number. */
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
    const [waiting] = await tx.query<{ count: number }>(
      'select count(*) as count from audit where position is null',
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
    message: 'the last entry of the log is not the entry that was written last: the log was rewritten',
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

/** What is wrong where `entry` stands and `position` should: all before it is proven, and `before` its chain. */
async function explain(
  tx: Tx,
  { entry, position, before, last }: { entry: Placed; position: number; before: Buffer; last: number },
): Promise<AuditFault> {
  if (position > last) {
    return { kind: 'inserted', position, message: `the log ends at ${last}: this entry was put behind it` };
  }
  if (entry.position < position) {
    return { kind: 'inserted', position, message: `at ${entry.position} stands more than one entry` };
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
        message: `${which} put in: what belongs here stands at ${real.position}`,
      };
    }
    return {
      kind: 'reordered',
      position,
      message: `what belongs here stands at ${real.position}`,
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
    return { kind: 'removed', position, message: `${which} missing, and those behind were moved up` };
  }
  return {
    kind: 'changed',
    position,
    message: 'this entry is not what was written: its content or its hash was changed, or the hash before it',
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

/** Whether what stands before the entry that belongs here is too much, and does not just stand elsewhere. */
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
