// An environment with events, receivers over real sockets, and a worker whose clock the test moves.

import { createSecretKey, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import { type AddressInfo, BlockList } from 'node:net';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { noActivity } from '../activity/writer.ts';
import { brandNames } from '../brand.ts';
import { type Db, openDb } from '../db/pool.ts';
import { placeAll } from '../db/sequencer.ts';
import { ensureEnvironment } from '../environments/store.ts';
import { exampleConnection } from '../events/event-types.ts';
import { queueEvent } from '../events/outbox.ts';
import { eventSequence } from '../events/sequence.ts';
import { createOutbound, type Fetch } from '../outbound/outbound.ts';
import type { Mailer } from '../users/mail.ts';
import { openVault } from '../vault.ts';
import { type EndpointFormat, getEndpoint, insertEndpoint } from './endpoints.ts';
import { createDeliverer, type Deliverer, type DelivererLimits } from './worker.ts';

export type Received = {
  method: string | undefined;
  path: string | undefined;
  headers: IncomingHttpHeaders;
  body: string;
  /** `webhook-id` */
  id: string;
  /** `n` of the event's tags, by which tests tell events apart. */
  n: number;
  connection: string;
};
/** How a receiver answers; without an end it never does. */
type Answering = (response: ServerResponse, received: Received) => void;

export const ok: Answering = (response) => response.writeHead(204).end();
export const answer =
  (status: number, headers: Record<string, string> = {}, body = ''): Answering =>
  (response) =>
    response.writeHead(status, headers).end(body);
export const silent: Answering = () => {};
/** Half a head, and then nothing: the socket is gone. */
export const hangUp: Answering = (response) => response.socket?.end('HTTP/1.1 200 OK\r\nConte');

export type Receiver = {
  url: string;
  got: Received[];
  /** How it answers from now on. */
  answers: Answering;
  close(): Promise<void>;
};

export async function openReceiver(answers: Answering = ok, host = '127.0.0.1'): Promise<Receiver> {
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks).toString('utf8');
    const { data = {} } = (body.startsWith('{') ? JSON.parse(body) : {}) as {
      data?: Record<string, unknown>;
    };
    const got: Received = {
      method: request.method,
      path: request.url,
      headers: request.headers,
      body,
      id: String(request.headers['webhook-id']),
      n: Number((data.tags as { n?: string } | undefined)?.n),
      connection: String(data.connection_id),
    };
    receiver.got.push(got);
    receiver.answers(response, got);
  });
  server.listen(0, host);
  await once(server, 'listening');
  const receiver: Receiver = {
    url: `http://${host}:${(server.address() as AddressInfo).port}/hook`,
    got: [],
    answers,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
  return receiver;
}

export type DeliveryBench = Awaited<ReturnType<typeof openDeliveryBench>>;

export async function openDeliveryBench() {
  const database: TestDatabase = await openTestDatabase();
  const { db } = database;
  const masterKey = { id: 'k', key: createSecretKey(randomBytes(32)) };
  const vault = openVault([masterKey]);
  const { id: environmentId } = (await ensureEnvironment(db, { name: 'dev', vault })).environment;
  const allow = new BlockList();
  allow.addSubnet('127.0.0.1', 32, 'ipv4');
  const outbound = createOutbound({ allow: [{ addresses: allow }] });
  const stops: (() => Promise<unknown>)[] = [];
  let aheadMs = 0;
  const nowMs = () => Date.now() + aheadMs;

  const bench = {
    db,
    target: database.target,
    vault,
    masterKey,
    environmentId,
    outbound,
    nowMs,
    /** Moves the clock of all workers. */
    advance(ms: number): void {
      aheadMs += ms;
    },
    after: (stop: () => Promise<unknown>) => void stops.push(stop),
    /** A worker of its own on `on`; as many as wanted may share a database. */
    deliverer(
      limits: Partial<DelivererLimits> = {},
      {
        on = db,
        fetch = outbound.fetchFor({ isTest: false }),
        warn = (...said) => console.error(...said),
        clockAheadMs = 0,
        mailer,
      }: {
        on?: Db;
        fetch?: Fetch;
        warn?: (...said: unknown[]) => void;
        /** What its machine's clock is ahead of the database's. */
        clockAheadMs?: number;
        mailer?: Mailer;
      } = {},
    ): Deliverer {
      const deliverer = createDeliverer({
        db: on,
        vault,
        fetch,
        mailer,
        brand: brandNames('nango'),
        baseUrl: 'https://trellis.example',
        log: { warn },
        activity: noActivity,
        authModeOf: () => 'OAUTH2',
        nowMs: () => nowMs() + clockAheadMs,
        machineMs: () => Date.now() + clockAheadMs,
        random: () => 0.5,
        limits: { timeoutMs: 2_000, ...limits },
      });
      stops.push(() => deliverer.stop(0));
      return deliverer;
    },
    async receiver(answers: Answering = ok): Promise<Receiver> {
      const receiver = await openReceiver(answers);
      stops.push(receiver.close);
      return receiver;
    },
    /** Answers its id. */
    endpoint: (url: string, types: string[] = [], format: EndpointFormat = 'standard'): Promise<number> =>
      db.transaction((tx) => insertEndpoint(tx, { environmentId, url, description: '', types, format })),
    stateOf: (id: number) => getEndpoint(db, { id, environmentId }),
    /** Raises `connection.created` with the numbers given, in their order, and gives them their positions. */
    async raise(
      numbers: readonly number[],
      { connection }: { connection: (n: number) => string } = { connection: () => 'ada' },
    ): Promise<void> {
      for (const n of numbers) {
        await queueEvent(db, {
          environmentId,
          type: 'connection.created',
          data: {
            ...exampleConnection,
            connection_id: connection(n),
            tags: { n: String(n) },
            missing_scopes: [],
          },
        });
      }
      // The database knows nothing of the clock that the test moves.
      await db.query(
        `update event set created_at = created_at + make_interval(secs => $1) where position is null`,
        [aheadMs / 1000],
      );
      await placeAll(db, eventSequence);
    },
    count: async (status: string): Promise<number> => {
      const [row] = await db.query<{ count: number }>(
        'select count(*) as count from delivery where status = $1',
        [status],
      );
      return row?.count ?? 0;
    },
    /** Moves the clock in steps while the worker goes on. */
    async pass(ms: number, { stepMs, deliverer }: { stepMs: number; deliverer: Deliverer }): Promise<void> {
      for (let passed = 0; passed < ms; passed += stepMs) {
        aheadMs += stepMs;
        await deliverer.deliverDue();
      }
    },
    anotherPool(): Db {
      const other = openDb(database.target);
      stops.unshift(() => other.end());
      return other;
    },
    async drop() {
      for (const stop of stops.toReversed()) await stop();
      await outbound.close();
      await database.drop();
    },
  };
  return bench;
}

export const minuteMs = 60_000;
export const hourMs = 60 * minuteMs;
export const dayMs = 24 * hourMs;
