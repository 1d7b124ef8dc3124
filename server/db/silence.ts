import type { Socket } from 'node:net';
import pg from 'pg';

/** What `pg` does not declare: the socket, and the process at the server, or what a pooler says in its place. */
type Wired = pg.ClientBase & { connection: { stream: Socket }; processID: number };

/** `unknown` behind a pooler, whose processes are others than the server's, and where the server does not tell. */
type Answer = 'works' | 'rests' | 'unknown' | 'not asked';

/** So many silences in turn where nobody can say whether the server works, and where it could not be asked. */
const maxSilences = { unknown: 5, 'not asked': 2 };

/** A connection that is for the question alone is lent by `lend`. It may take `withinMs` to come about, and again to answer. */
type Asking = { lend: <T>(work: (client: pg.ClientBase) => Promise<T>) => Promise<T>; withinMs: number };

/**
 * Ends the pool's connections on which nothing comes or goes for `silentMs` and for which the server, asked on another, has
 * nothing to do: where it was cut off without a word, TCP says so after a quarter of an hour.
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
      // What ended while it was asked about is not silent.
      const isStill = heardBytes === stream.bytesRead + stream.bytesWritten;
      const isOver = answer === 'rests' || (answer !== 'works' && silences >= maxSilences[answer]);
      if (isStill && isOver) stream.destroy();
      else stream.setTimeout(answer === 'not asked' ? Math.min(silentMs, asking.withinMs) : silentMs);
    });
  });
}

/** One question at a time, for all that came while the one before was on its way: they may be as many as connections. */
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
      // Nothing is said where its owner has turned `track_activities` off, or of another user's processes.
      return state === null || state === 'disabled' ? 'unknown' : 'works';
    };
  });
}

/** A server that refuses (it has no free connection, it starts) is there. */
function notAsked(error: Error): () => Answer {
  const isAnswered = error instanceof pg.DatabaseError || error.cause instanceof pg.DatabaseError;
  return () => (isAnswered ? 'unknown' : 'not asked');
}
