/** What the code of a run writes to its log: kept in batches, bounded, and readable while the run goes on. */
import type { OperationMessage } from '../../activity/operations.ts';
import { type Db, first } from '../../db/pool.ts';
import type { LogLine } from '../isolation/runtime.ts';

/** Of one attempt. Then one line says that the rest is left out. */
const mostLines = 2_000;
const flushMs = 1_000;
/** Each attempt writes behind those before it, and one that was given back, which does not count, behind itself. */
const positionsOfAttempt = 100_000;
/** The last ones, for the activity log. */
const mostTold = 50;

export type RunLog = {
  write(line: LogLine): void;
  /** What was written last, for the activity log. */
  told(): OperationMessage[];
  /** Writes what waits; resolves when it is stored, or given up. */
  end(): Promise<void>;
};

type Line = LogLine & { position: number; at: Date };

export function createRunLog({
  db,
  runId,
  attempt,
  now,
  onFailure,
}: {
  db: Db;
  runId: string;
  attempt: number;
  now: () => Date;
  onFailure: (error: unknown) => void;
}): RunLog {
  let waiting: Line[] = [];
  let count = 0;
  let last: LogLine[] = [];
  let timer: NodeJS.Timeout | undefined;
  let writing = Promise.resolve();
  let begin: number | undefined;

  async function storeAll(lines: readonly Line[]): Promise<void> {
    begin ??= Math.max(attempt * positionsOfAttempt, await behindLast(db, runId));
    await store(db, { runId, begin, lines });
  }

  function flush(): void {
    clearTimeout(timer);
    timer = undefined;
    const lines = waiting;
    waiting = [];
    if (lines.length > 0) writing = writing.then(() => storeAll(lines)).catch(onFailure);
  }

  return {
    write(line) {
      last.push(line);
      if (last.length > 2 * mostTold) last = last.slice(-mostTold);
      if (count > mostLines) return;
      const text = count === mostLines ? 'More lines were written and are left out.' : line.text;
      const level = count === mostLines ? 'warn' : line.level;
      waiting.push({ level, text, position: count, at: now() });
      count += 1;
      timer ??= setTimeout(flush, flushMs);
    },
    told: () =>
      last
        .slice(-mostTold)
        .map(({ level, text }) => ({ level: level === 'debug' ? 'info' : level, message: text })),
    async end() {
      flush();
      await writing;
    },
  };
}

/** The position behind all lines that a run has. */
async function behindLast(db: Db, runId: string): Promise<number> {
  const last = first(
    await db.query<{ position: number }>(
      'select position from run_line where run_id = $1 order by position desc limit 1',
      [runId],
    ),
  );
  return last === undefined ? 0 : last.position + 1;
}

async function store(
  db: Db,
  { runId, begin, lines }: { runId: string; begin: number; lines: readonly Line[] },
): Promise<void> {
  // A run that was removed meanwhile has no log.
  await db.query(
    `insert into run_line (run_id, position, at, level, message)
     select run.id, line.position, line.at, line.level, line.message
     from unnest($2::integer[], $3::timestamptz[], $4::text[], $5::text[]) as line (position, at, level, message)
     join run on run.id = $1
     on conflict on constraint run_line_pkey do nothing`,
    [
      runId,
      lines.map(({ position }) => begin + position),
      lines.map(({ at }) => at),
      lines.map(({ level }) => level),
      // PostgreSQL stores neither.
      lines.map(({ text }) => text.replaceAll('\0', '').toWellFormed()),
    ],
  );
}
