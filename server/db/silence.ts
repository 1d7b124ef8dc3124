import type { Socket } from 'node:net';
import pg from 'pg';

/** Fields that `pg` does not declare: the socket, and the process ID of the server, or an ID from a pooler. */
type Wired = pg.ClientBase & { connection: { stream: Socket }; processID: number };

/** What the server does for a connection. `unknown` behind a pooler, whose process IDs differ, and if the server hides it. */
type State = 'active' | 'idle' | 'unknown' | 'unreachable';

/** The number of consecutive silences after which a connection is closed although its state is not known. */
const maxSilences = { unknown: 5, unreachable: 2 };

/** `lend` lends a separate connection for the query. Opening it and the response may take `withinMs` each. */
type Probe = { lend: <T>(work: (client: pg.ClientBase) => Promise<T>) => Promise<T>; withinMs: number };

/**
 * Closes connections of the pool that send and receive nothing for `silentMs` and for which the server, on another connection,
 * reports no work. TCP alone would detect a silent loss after a quarter of an hour.
 */
export function endSilentOnes(pool: pg.Pool, { silentMs, ...probe }: Probe & { silentMs: number }): void {
  const stateOf = createProbe(probe);
  pool.on('connect', (client) => {
    const { connection, processID } = client as unknown as Wired;
    const { stream } = connection;
    let silences = 0;
    let countedBytes = 0;
    stream.setTimeout(silentMs);
    stream.on('timeout', async () => {
      const bytes = stream.bytesRead + stream.bytesWritten;
      silences = bytes === countedBytes ? silences + 1 : 1;
      countedBytes = bytes;
      const state = await stateOf(processID);
      // A query that ended meanwhile is not silent.
      const isStill = countedBytes === stream.bytesRead + stream.bytesWritten;
      const isOver = state === 'idle' || (state !== 'active' && silences >= maxSilences[state]);
      if (isStill && isOver) stream.destroy();
      else stream.setTimeout(state === 'unreachable' ? Math.min(silentMs, probe.withinMs) : silentMs);
    });
  });
}

/** One query at a time, for all connections that became silent during the previous one. */
function createProbe(probe: Probe): (processID: number) => Promise<State> {
  let last: Promise<unknown> = Promise.resolve();
  let next: { processIDs: number[]; states: Promise<(processID: number) => State> } | undefined;
  return async (processID) => {
    if (next === undefined) {
      const processIDs: number[] = [];
      const states = last.then(() => {
        next = undefined;
        return readStates(probe, processIDs).catch(withoutStates);
      });
      next = { processIDs, states };
      last = states;
    }
    next.processIDs.push(processID);
    return (await next.states)(processID);
  };
}

async function readStates(
  { lend, withinMs }: Probe,
  processIDs: number[],
): Promise<(processID: number) => State> {
  const text = `
    select pg_backend_pid() as "ownID", pid as "processID", state from (select) as once
    left join pg_stat_activity on pid = any ($1)`;
  return lend(async (client) => {
    const query = { text, values: [processIDs], query_timeout: withinMs };
    const { rows } = await client.query<{ ownID: number; processID: number; state: string | null }>(query);
    if (rows[0]?.ownID !== (client as Wired).processID) return () => 'unknown';
    const states = new Map(rows.map(({ processID, state }) => [processID, state]));
    return (processID) => {
      const state = states.get(processID);
      if (state === undefined || state?.startsWith('idle')) return 'idle';
      // The state is hidden if `track_activities` is off, and for processes of other users.
      return state === null || state === 'disabled' ? 'unknown' : 'active';
    };
  });
}

/** A server that refuses (no free connection, a start) is reachable. */
function withoutStates(error: Error): () => State {
  const isReached = error instanceof pg.DatabaseError || error.cause instanceof pg.DatabaseError;
  return () => (isReached ? 'unknown' : 'unreachable');
}
