/** Reading the log of a run. */
import type { Queryable } from '../../db/pool.ts';
import type { DataKey } from '../../vault.ts';
import { goneText, openLine } from './sealed-output.ts';

type RunLine = {
  position: number;
  at: Date;
  level: string;
  message: string;
  /** The code wrote it, and the key that sealed it was destroyed. */
  isDeleted: boolean;
};

/** Looked at in one call: to open one takes some 20 µs. */
const maxLines = 1_000;

/**
 * Lines after a position, in their order; those that hold `text` where it is given. `key` is the run's, undefined where it was
 * destroyed. `nextAfter`: where the next call goes on; undefined: there are no more.
 */
export async function linesOf(
  q: Queryable,
  {
    text,
    key,
    ...of
  }: {
    environmentId: number;
    id: string;
    after: number;
    text: string | undefined;
    key: DataKey | undefined;
  },
): Promise<{ lines: RunLine[]; nextAfter: number | undefined }> {
  const found = await findLines(q, { ...of, limit: maxLines + 1 });
  const looked = found.slice(0, maxLines);
  const nextAfter = found.length > maxLines ? looked.at(-1)?.position : undefined;
  const lines = looked.map(({ sealed, ...line }) => {
    if (sealed === null) return { ...line, isDeleted: false };
    const opened = openLine(sealed, key);
    return { ...line, message: opened ?? goneText, isDeleted: opened === undefined };
  });
  if (text === undefined) return { lines, nextAfter };
  const wanted = text.toLowerCase();
  const fits = ({ message, isDeleted }: RunLine) => !isDeleted && message.toLowerCase().includes(wanted);
  return { lines: lines.filter(fits), nextAfter };
}

type Stored = Omit<RunLine, 'isDeleted'> & { sealed: Buffer | null };

function findLines(
  q: Queryable,
  { environmentId, id, after, limit }: { environmentId: number; id: string; after: number; limit: number },
): Promise<Stored[]> {
  return q.query<Stored>(
    `select line.position, line.at, line.level, line.message, line.sealed
     from run_line line
     join run on run.id = line.run_id
     where run.environment_id = $1 and run.id = $2 and line.position > $3
     order by line.position
     limit $4`,
    [environmentId, id, after, limit],
  );
}
