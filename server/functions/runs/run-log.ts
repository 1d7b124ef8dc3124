/** The log of a run: written in batches, bounded, and readable while the run is under way. */
import { type OperationMessage, sealMessage } from '../../activity/operations.ts';
import { type Db, first } from '../../db/pool.ts';
import type { LogLine } from '../isolation/run-order.ts';
import { type SealingKey, sealLines } from './sealed-output.ts';

/** The maximum number of lines of an attempt. One more line reports that the rest is left out. */
const maxLines = 2_000;
const flushMs = 1_000;
const linesAtOnce = 100;
/** Positions for each attempt. A run that was given back keeps its attempt, and writes after its earlier lines. */
const positionsOfAttempt = 100_000;

/** The attempt that wrote the line at a position. */
export const attemptAt = (position: number): number => Math.floor(position / positionsOfAttempt);

/** The maximum number of lines, the last ones, for the activity log. */
const maxRecent = 50;

/** `by` seals the lines of customer code. A line of this service has none. */
export type RunLogLine = LogLine & { by?: SealingKey | undefined };

type RunLog = {
  write(line: RunLogLine): void;
  /** The last lines, for the activity log. */
  recent(): OperationMessage[];
  /** Writes the pending lines, and resolves when they are stored, or when the attempt to store them has failed. */
  end(): Promise<void>;
};

type Line = RunLogLine & { position: number; at: Date };

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
  let last: RunLogLine[] = [];
  let timer: NodeJS.Timeout | undefined;
  let writing = Promise.resolve();
  let begin: number | undefined;

  async function storeAll(lines: readonly Line[]): Promise<void> {
    begin ??= Math.max(attempt * positionsOfAttempt, await behindLast(db, runId));
    // A few at a time, so that other runs can store theirs in between.
    for (let from = 0; from < lines.length; from += linesAtOnce)
      await store(db, { runId, begin, lines: lines.slice(from, from + linesAtOnce) });
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
      if (last.length > 2 * maxRecent) last = last.slice(-maxRecent);
      if (count > maxLines) return;
      const kept = count === maxLines ? leftOut : line;
      waiting.push({ ...kept, position: count, at: now() });
      count += 1;
      timer ??= setTimeout(flush, flushMs);
    },
    recent: () =>
      last.slice(-maxRecent).map(({ level, text, by }) => ({
        level: level === 'debug' ? 'info' : level,
        ...(by === undefined ? { message: text } : { message: '', sealed: sealMessage(text, by) }),
      })),
    async end() {
      flush();
      await writing;
    },
  };
}

const leftOut: RunLogLine = { level: 'warn', text: 'More lines were written and are left out.' };

/** The position after all lines of a run. */
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
  // PostgreSQL stores neither NUL nor lone surrogates.
  const texts = lines.map(({ text }) => text.replaceAll('\0', '').toWellFormed());
  const sealed = sealedAll(lines, texts);
  // A run that was deleted meanwhile has no log.
  await db.query(
    `insert into run_line (run_id, position, at, level, message, sealed)
     select run.id, line.position, line.at, line.level, line.message, line.sealed
     from unnest($2::integer[], $3::timestamptz[], $4::text[], $5::text[], $6::bytea[])
       as line (position, at, level, message, sealed)
     join run on run.id = $1
     on conflict on constraint run_line_pkey do nothing`,
    [
      runId,
      lines.map(({ position }) => begin + position),
      lines.map(({ at }) => at),
      lines.map(({ level }) => level),
      texts.map((text, index) => (sealed[index] === null ? text : '')),
      sealed,
    ],
  );
}

/** Seals the lines of each key together. Null for a line that stays plain text. */
function sealedAll(lines: readonly Line[], texts: readonly string[]): (Buffer | null)[] {
  const sealed: (Buffer | null)[] = lines.map(() => null);
  const byKey = Map.groupBy(
    lines.keys().filter((index) => lines[index]!.by !== undefined),
    (index) => lines[index]!.by!,
  );
  for (const [by, indexes] of byKey) {
    const bodies = sealLines(
      indexes.map((index) => texts[index]!),
      by,
    );
    for (const [at, index] of indexes.entries()) sealed[index] = bodies[at]!;
  }
  return sealed;
}
