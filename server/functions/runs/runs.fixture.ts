// Deployed functions, their connections and nodes that run them, on a database of one test and an API of its own.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { openTestDatabase } from '../../../test/support/database.ts';
import { insertConnection } from '../../connections/store/save.ts';
import { ensureEnvironment } from '../../environments/store.ts';
import { createIntegration } from '../../integrations/store.ts';
import type { Kind } from '../deploys/definition.ts';
import { deploy } from '../deploys/deploy.ts';
import { describeHere } from '../deploys/examine.ts';
import { openRunNode, type RunNode } from './run-node.fixture.ts';
import { linesOf } from './run-routes.ts';
import { getRun } from './runs.ts';
import { startNewSyncs, startSyncsOf } from './schedule.ts';
import { keyReader, openError, type StoredError, wrappedKeySql } from './sealed-output.ts';
import type { RunnerLimits } from './worker.ts';

export type RunsBench = Awaited<ReturnType<typeof openRunsBench>>;
type Handle = (request: IncomingMessage, response: ServerResponse) => void;

/** The text of a bundle: a sync of the model `Row` that does `body` with `nango`. */
export const syncOf = (body: string, more = '') => `
  const z = require('zod');
  exports.default = {
    type: 'sync', description: 'A test.', frequency: 'every hour',
    models: { Row: z.object({ id: z.string() }).loose() },
    ${more}
    async exec(nango) { ${body} },
  };`;

export async function openRunsBench(limits: Partial<RunnerLimits> = {}) {
  const { db, target, drop } = await openTestDatabase();
  const masterKey = randomBytes(32).toString('base64');
  let aheadMs = 0;
  const nowMs = () => Date.now() + aheadMs;
  const now = () => new Date(nowMs());
  const nodes: RunNode[] = [];
  async function node(): Promise<RunNode> {
    const opened = await openRunNode({ target, masterKey, limits }, { nowMs });
    nodes.push(opened);
    return opened;
  }
  let handle: Handle = (_request, response) => response.end('{}');
  const api = createServer((request, response) => handle(request, response)).listen(0, '127.0.0.1');
  await once(api, 'listening');
  const apiUrl = `http://127.0.0.1:${(api.address() as AddressInfo).port}`;
  const one = await node();
  const { vault, reading } = one;
  const { environment } = await ensureEnvironment(db, { name: 'dev', vault });
  const integration = await createIntegration(db, {
    ...reading,
    environmentId: environment.id,
    key: 'api',
    provider: 'unauthenticated',
    integrationConfig: { base_url: apiUrl },
  });
  const place = { environmentId: environment.id, integrationKey: 'api' };

  return {
    db,
    target,
    masterKey,
    environment,
    integration,
    one,
    node,
    now,
    place,
    apiUrl,
    advance: (ms: number) => {
      aheadMs += ms;
    },
    /** What the API answers from now on. */
    serve(given: Handle) {
      handle = given;
    },
    async deploy(name: string, code: string, kind: Kind = 'sync') {
      await deploy(
        { db, describe: describeHere(one.runtime), now, afterDeploy: startNewSyncs },
        {
          environmentId: environment.id,
          reconcile: 'none',
          origin: 'deploy',
          actor: 'key:1',
          given: [
            {
              integrationKey: 'api',
              kind,
              name,
              code,
              source: null,
              features: [],
              sdkVersion: null,
              path: [],
            },
          ],
        },
      );
    },
    /** A connection whose syncs are due at once. */
    async connect(connectionId: string, of = integration) {
      const made = await db.transaction((tx) =>
        insertConnection(tx, {
          vault,
          integration: of,
          connectionId,
          credentials: { type: 'NONE' },
          grant: {},
          at: now(),
        }),
      );
      await startSyncsOf(db, { connectionId: made.id, at: now() });
      return made;
    },
    async runs() {
      const rows = await db.query<{
        id: string;
        state: string;
        trigger: string;
        attempt: number;
        error: StoredError | null;
        counts: object;
        wrapped: Buffer | null;
      }>(
        `select run.id, state, trigger, attempt, error, counts, ${wrappedKeySql} as wrapped from run order by run.id`,
      );
      const keys = keyReader(vault);
      return rows.map(({ wrapped, error, ...run }) => ({
        ...run,
        error: error && openError(error, keys(wrapped)),
      }));
    },
    async lines(): Promise<string[]> {
      const rows = await db.query<{ id: string }>(
        'select distinct run_id as id from run_line order by run_id',
      );
      const texts: string[] = [];
      for (const { id } of rows) {
        const { wrappedKey } = await getRun(db, { environmentId: environment.id, id });
        const key = keyReader(vault)(wrappedKey);
        const { lines } = await linesOf(db, {
          environmentId: environment.id,
          id,
          after: -1,
          text: undefined,
          key,
        });
        texts.push(...lines.map(({ message }) => message));
      }
      return texts;
    },
    /** Ids of the live records of a connection's model `Row`. */
    async records(connection: number): Promise<string[]> {
      const rows = await db.query<{ id: string }>(
        `select external_id as id
         from record
         join dataset on dataset.id = record.dataset_id
         where dataset.connection = $1 and deleted_at is null
         order by external_id`,
        [connection],
      );
      return rows.map(({ id }) => id);
    },
    events: async (like: string) =>
      await db.query<{ type: string; data: Record<string, unknown> }>(
        'select type, data from event where type like $1 order by created_at, id',
        [like],
      ),
    async end() {
      for (const opened of nodes) await opened.close();
      api.close();
      api.closeAllConnections();
      await drop();
    },
  };
}
