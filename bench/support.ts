// What the benchmarks share: a service on a database that can be reached beside it, floors, figures.

import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import pg from 'pg';
import { ensureDay } from '../server/activity/partitions.ts';
import { openDb } from '../server/db/pool.ts';
import { atDatabase, openTestDatabase, type TestServer, urlOf } from '../test/support/database.ts';
import { fillOtherOwners } from '../test/support/other-owners.ts';
import { type RunningService, startRunningService } from '../test/support/service.ts';

export type BenchOptions = {
  /** Times that everything is measured; medians of them are printed. */
  rounds: number;
  /** `quick` measures the same with fewer records and calls. */
  scale: 'quick' | 'full';
  /** Of `growth`: the records of its last step, and the number of steps. */
  records?: number;
  steps?: number;
};

/** What `main.ts` runs by name. */
export type Benchmark = {
  about: string;
  /** It has no database, measures whole tables, or needs an embedded database of its own. */
  isWithoutOthers?: true;
  run(options: BenchOptions): Promise<void>;
};

/** A database like the server's template that holds a million records of others, and statistics of them. */
export async function makeTemplateOfOthers(
  server: TestServer,
): Promise<{ template: string; drop(): Promise<void> }> {
  const template = `${server.template}_others`;
  const administer = async (statement: string) => {
    const db = openDb(server.admin, { maxConnections: 1 });
    await db.query(statement).finally(() => db.end());
  };
  await administer(`create database ${template} template ${server.template}`);
  const db = openDb(atDatabase(server.admin, template), { maxConnections: 1 });
  try {
    await ensureDay(db, Date.now());
    await fillOtherOwners(db, { connections: 20_000, datasets: 1_000, rows: 50_000 });
    await db.query('vacuum analyze');
  } finally {
    await db.end();
  }
  return { template, drop: () => administer(`drop database ${template} with (force)`) };
}

/** The service as a process of its own, and its database for the floors. */
export type BenchService = {
  readonly service: RunningService;
  /** Of the service's database. */
  readonly databaseUrl: string;
  /** One more connection to the service's database by the same driver; closed with the service. */
  connectBare(): Promise<pg.Client>;
  /** A new connection of the service: the headers that name it. */
  makeConnection(): Promise<Record<string, string>>;
  /** Sends JSON and answers the body's bytes and time; throws unless it is 2xx. Nothing is parsed. */
  send(method: string, path: string, options?: SendOptions): Promise<Buffer>;
  close(): Promise<void>;
};
type SendOptions = { headers?: Record<string, string>; body?: string | Buffer };

/**
 * Starts one on a database of its own: on TEST_DATABASE_URL's server, else on an embedded one without fsync. Its
 * connections' provider is at `baseUrl`.
 */
export async function openBenchService({
  baseUrl = 'https://bench.invalid',
  env: more = {},
}: {
  baseUrl?: string;
  env?: Record<string, string>;
} = {}): Promise<BenchService> {
  const { target, drop } = await openTestDatabase();
  const env = {
    DATABASE_URL: urlOf(target),
    TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8',
    TRELLIS_ENCRYPTION_KEYS: `bench:${randomBytes(32).toString('base64')}`,
    ...more,
  };
  const service = await startRunningService({ env });
  const agent = new Agent({ keepAlive: true });
  const clients: pg.Client[] = [];
  await service.call('POST', '/integrations', {
    body: {
      integration_id: 'bench',
      provider: 'private-api-key',
      integration_config: { base_url: baseUrl },
    },
  });
  let connections = 0;
  return {
    service,
    databaseUrl: env.DATABASE_URL,
    async connectBare() {
      const client = new pg.Client({ connectionString: urlOf(target) });
      await client.connect();
      clients.push(client);
      return client;
    },
    async makeConnection() {
      connections += 1;
      const connectionId = `bench-${connections}`;
      await service.call('POST', '/connections', {
        body: {
          integration_id: 'bench',
          connection_id: connectionId,
          credentials: { type: 'API_KEY', apiKey: 'secret' },
        },
      });
      return { 'integration-id': 'bench', 'connection-id': connectionId };
    },
    send: (method, path, { headers = {}, body } = {}) =>
      send(new URL(path, service.baseUrl), {
        method,
        agent,
        headers: {
          authorization: `Bearer ${service.secretKey}`,
          ...(body !== undefined && {
            'content-type': 'application/json',
            'content-length': Buffer.byteLength(body),
          }),
          ...headers,
        },
        body,
      }),
    async close() {
      agent.destroy();
      for (const client of clients) await client.end();
      await service.stop({ keepData: false });
      await drop();
    },
  };
}

/** The bytes of a 2xx; throws at any other answer. Nothing is parsed. */
export function send(
  url: URL,
  { body, ...options }: { method: string; agent: Agent; headers: object; body: string | Buffer | undefined },
): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  const call = request(url, { ...options, headers: { ...options.headers } }, (response) => {
    const chunks: Buffer[] = [];
    response.on('data', (chunk: Buffer) => chunks.push(chunk));
    response.on('error', reject);
    response.on('end', () => {
      const bytes = Buffer.concat(chunks);
      if (response.statusCode! >= 200 && response.statusCode! < 300) resolve(bytes);
      else
        reject(
          new Error(`${options.method} ${url}: ${response.statusCode} ${bytes.toString('utf8', 0, 500)}`),
        );
    });
  });
  call.on('error', reject);
  call.end(body);
  return promise;
}

/** Milliseconds that `work` took. */
export async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

/** Bytes the server wrote to its log meanwhile, of whatever database: nothing else may run. */
export async function walOf(client: pg.Client, work: () => Promise<unknown>): Promise<number> {
  const position = async () => {
    const { rows } = await client.query<{ bytes: string }>(
      `select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') as bytes`,
    );
    return Number(rows[0]?.bytes);
  };
  const before = await position();
  await work();
  return (await position()) - before;
}

/** Highest resident memory of a process while `work` ran, in MB (Linux). */
export async function peakMemoryOf(pid: number, work: () => Promise<unknown>): Promise<number> {
  let peak = 0;
  const look = async () => {
    const status = await readFile(`/proc/${pid}/status`, 'utf8');
    peak = Math.max(peak, Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024);
  };
  const timer = setInterval(look, 50);
  try {
    await work();
    await look();
  } finally {
    clearInterval(timer);
  }
  return peak;
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** `share` from 0 to 1. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

/** One binary COPY (PostgreSQL manual, COPY, "Binary Format") through the driver's own connection. */
export function copyInto(client: pg.Client, into: string, bytes: Buffer): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  client.query({
    submit: (connection: pg.Connection) => connection.query(`copy ${into} from stdin (format binary)`),
    handleCopyInResponse(connection: CopyConnection) {
      connection.sendCopyFromChunk(bytes);
      connection.endCopyFrom();
    },
    handleCommandComplete() {},
    handleError: reject,
    handleReadyForQuery: () => resolve(),
  } as unknown as pg.Submittable);
  return promise;
}
type CopyConnection = { sendCopyFromChunk(bytes: Buffer): void; endCopyFrom(): void };

/** The bytes of a binary COPY of these rows. */
export function copyBytes(rows: readonly Buffer[][]): Buffer {
  const pieces: Buffer[] = [Buffer.from('PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0', 'latin1')];
  for (const fields of rows) {
    const count = Buffer.alloc(2);
    count.writeInt16BE(fields.length);
    pieces.push(count);
    for (const field of fields) pieces.push(int4(field.length), field);
  }
  pieces.push(Buffer.from([0xff, 0xff]));
  return Buffer.concat(pieces);
}

export function int4(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

export function int8(value: number | bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64BE(BigInt(value));
  return bytes;
}

/** One line of the report: a figure, its floor, their ratio, and what it must reach. */
export function report(
  name: string,
  figure: string,
  verdict?: { ratio: number; must: `${'<=' | '>='} ${number}` },
): void {
  let line = `  ${name.padEnd(44)}${figure.padStart(34)}`;
  if (verdict !== undefined) {
    const [relation, bound] = verdict.must.split(' ') as ['<=' | '>=', string];
    const isReached = relation === '<=' ? verdict.ratio <= Number(bound) : verdict.ratio >= Number(bound);
    line += `  ${verdict.ratio.toFixed(2).padStart(6)}  (${verdict.must}${isReached ? '' : ', MISSED'})`;
  }
  console.log(line);
}

/** `12,345/s` */
export function rate(count: number, ms: number): string {
  return `${Math.round(count / (ms / 1000)).toLocaleString('en')}/s`;
}
