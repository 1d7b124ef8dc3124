import type { Socket } from 'node:net';
import pg from 'pg';

/** Fields that `pg` does not declare: the socket, and the process ID of the server, or an ID from a pooler. */
type Wired = pg.ClientBase & { connection: { stream: Socket }; processID: number };

/** `unknown` behind a pooler, whose process IDs differ from the server's, and if the server hides the state. */
type Answer = 'works' | 'rests' | 'unknown' | 'not asked';

/** The number of consecutive silences after which a connection is closed although its state is not known. */
const maxSilences = { unknown: 5, 'not asked': 2 };

/** `lend` lends a separate connection for the question. Opening it and the response may take `withinMs` each. */
type Asking = { lend: <T>(work: (client: pg.ClientBase) => Promise<T>) => Promise<T>; withinMs: number };

/**
 * Closes connections of the pool that send and receive nothing for `silentMs` and for which the server, on another connection,
 * reports no work. TCP alone would detect a silent loss after a quarter of an hour.
 */
export function endSilentOnes(pool: pg.Pool, { silentMs, ...asking }: Asking & { silentMs: number }): void {
  const ask = asked(asking);
  pool.on('connect', (client) => {
    const { connection, processID } = client as unknown as Wired;
    const { stream } = connection;
    let silences = 0;
    let heardBytes = 0;
    stream.setTimeout(silentMs);
    stream.on('timeout', async () => {
      const bytes = stream.bytesRead + stream.bytesWritten;
      silences = bytes === heardBytes ? silences + 1 : 1;
      heardBytes = bytes;
      const answer = await ask(processID);
      // A query that ended meanwhile is not silent.
      const isStill = heardBytes === stream.bytesRead + stream.bytesWritten;
      const isOver = answer === 'rests' || (answer !== 'works' && silences >= maxSilences[answer]);
      if (isStill && isOver) stream.destroy();
      else stream.setTimeout(answer === 'not asked' ? Math.min(silentMs, asking.withinMs) : silentMs);
    });
  });
}

/** One question at a time, for all connections that became silent during the previous one. */
function asked(asking: Asking): (processID: number) => Promise<Answer> {
  let last: Promise<unknown> = Promise.resolve();
  let next: { processIDs: number[]; answers: Promise<(processID: number) => Answer> } | undefined;
  return async (processID) => {
    if (next === undefined) {
      const processIDs: number[] = [];
      const answers = last.then(() => {
        next = undefined;
        return askServer(asking, processIDs).catch(notAsked);
      });
      next = { processIDs, answers };
      last = answers;
    }
    next.processIDs.push(processID);
    return (await next.answers)(processID);
  };
}

async function askServer(
  { lend, withinMs }: Asking,
  processIDs: number[],
): Promise<(processID: number) => Answer> {
  const text = `
    select pg_backend_pid() as "askingID", pid as "processID", state from (select) as once
    left join pg_stat_activity on pid = any ($1)`;
  return lend(async (client) => {
    const question = { text, values: [processIDs], query_timeout: withinMs };
    const { rows } = await client.query<{ askingID: number; processID: number; state: string | null }>(
      question,
    );
    if (rows[0]?.askingID !== (client as Wired).processID) return () => 'unknown';
    const states = new Map(rows.map(({ processID, state }) => [processID, state]));
    return (processID) => {
      const state = states.get(processID);
      if (state === undefined || state?.startsWith('idle')) return 'rests';
      // The state is hidden if `track_activities` is off, and for processes of other users.
      return state === null || state === 'disabled' ? 'unknown' : 'works';
    };
  });
}

/** A server that refuses (no free connection, a start) is reachable. */
function notAsked(error: Error): () => Answer {
  const isAnswered = error instanceof pg.DatabaseError || error.cause instanceof pg.DatabaseError;
  return () => (isAnswered ? 'unknown' : 'not asked');
}
