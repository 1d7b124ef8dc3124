/** What goes wrong in a trial. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Db } from '../../server/db/pool.ts';
import type { Installation } from './installation.ts';

/** One thing that goes wrong; it is over when this resolves, with what there is to tell of it. */
export type Fault = { name: string; strike(installation: Installation, db: Db): Promise<unknown> };

export const killOf = (node: string): Fault => ({
  name: 'node killed',
  strike: async (installation) => ({ node, starts: await installation.killNode(node) }),
});

/** Longer than others wait for the lease of a refresh (40 s), of a run (20 s) and of a delivery (30 s). */
const outlastingMs = 45_000;

export const freezeOf = (node: string): Fault => ({
  name: 'node frozen',
  strike: (installation) => installation.freezeNode(node, outlastingMs),
});

export const postgresRestart: Fault = {
  name: 'PostgreSQL restarted',
  strike: (installation) => installation.restartPostgres(),
};

export const workerKillOf = (worker: number): Fault => ({
  name: 'worker restarted',
  strike: (installation) => installation.leaveWithoutWorker(worker, 0),
});

export const workerAwayOf = (worker: number): Fault => ({
  name: 'worker killed',
  strike: (installation) => installation.leaveWithoutWorker(worker, 5_000),
});

export const workerFreezeOf = (worker: number): Fault => ({
  name: 'worker frozen',
  strike: (installation) => installation.freezeWorker(worker, 20_000),
});

export const pgbouncerRestart: Fault = {
  name: 'PgBouncer restarted',
  strike: (installation) => installation.restartPgbouncer(),
};

/** Longer than all leases, from a moment on at which a refresh is under way. */
export const postgresAway: Fault = {
  name: 'PostgreSQL away',
  async strike(installation) {
    let refreshes = 0;
    for (let looks = 0; refreshes === 0; looks += 1) {
      if (looks === 3_000) throw new Error('no refresh was under way');
      await sleep(20);
      refreshes = (await installation.report()).tokens.underWay;
    }
    await installation.leaveWithoutPostgres(outlastingMs);
    return { refreshes };
  },
};

/** As after a failover to a server that is no primary yet. */
export const readOnly: Fault = {
  name: 'database read-only',
  async strike(_installation, db) {
    await db.query('alter system set default_transaction_read_only = on');
    await db.query('select pg_reload_conf()');
    await sleep(8_000);
    await db.query('alter system reset default_transaction_read_only');
    await db.query('select pg_reload_conf()');
  },
};

const fullTables = ['record', 'payload', 'event', 'run', 'connection', 'delivery'];

/** As PostgreSQL says it where a table cannot be extended (53100). */
export const diskFull: Fault = {
  name: 'disk full',
  async strike(_installation, db) {
    await db.query(
      `create or replace function disk_full() returns trigger language plpgsql as $$
       begin
         raise exception using errcode = '53100', message = 'could not extend file: No space left on device';
       end $$`,
    );
    for (const table of fullTables)
      await retried(
        db,
        `create trigger disk_full before insert or update on ${table} for each row execute function disk_full()`,
      );
    await sleep(8_000);
    for (const table of fullTables) await retried(db, `drop trigger disk_full on ${table}`);
  },
};

/** A change of a table may lose against what is written just then (40P01). */
async function retried(db: Db, statement: string): Promise<void> {
  for (;;) {
    try {
      await db.query(statement);
      return;
    } catch (error) {
      if ((error as { code?: unknown }).code !== '40P01') throw error;
    }
  }
}

/** Its clock, and no other, is a day ahead for a while: see `clock-jump.ts`. */
export const clockJumpOf = (node: string): Fault => ({
  name: 'clock a day ahead',
  async strike(installation) {
    installation.signalNode(node, 'SIGUSR2');
    await sleep(20_000);
    installation.signalNode(node, 'SIGUSR2');
  },
});
