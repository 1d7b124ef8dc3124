// Connections in two environments, and a provider on loopback whose revocation endpoint answers as a test says.

import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { shippedCatalog as shipped } from '../../test/support/catalog.ts';
import { openTestDatabase } from '../../test/support/database.ts';
import { openSecretWatch } from '../../test/support/secret-watch.ts';
import { watchedVault } from '../../test/support/secret-watch-server.ts';
import { readMasterKeys } from '../config/config.ts';
import { ensureEnvironment } from '../environments/store.ts';
import type { Caller } from '../http/auth/caller.ts';
import { createIntegration, type Integration } from '../integrations/store.ts';
import { createLog } from '../log.ts';
import type { Fetch } from '../outbound/outbound.ts';
import type { Catalog } from '../providers/catalog.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { openVault } from '../vault.ts';
import { disconnect, type RevokeChoice } from './disconnect.ts';
import { createStatusTransitions } from './health/status-transitions.ts';
import { createCredentialSource } from './refresh/credentials.ts';
import { revocationJob } from './revocation/revocations.ts';
import { createConnectionReader } from './store/reader.ts';
import { insertConnection } from './store/save.ts';
import { type Connection, findConnection } from './store/store.ts';

export const clientSecret = 'GOCSPX-of-the-client';
const host = 'apps.googleusercontent.com';
const google = shipped.get('google-sheet');
/** The shipped providers, and one that replaces refresh tokens and revokes each of them alone. */
const rotating: ProviderDefinition = {
  ...google,
  name: 'rotating',
  refresh: { ...google.refresh, rotates: true },
  revocation: { ...google.revocation!, unit: 'token' },
};
const catalog: Catalog = {
  ...shipped,
  get: (name) => (name === rotating.name ? rotating : shipped.get(name)),
  find: (name) => (name === rotating.name ? rotating : shipped.find(name)),
};

export type DisconnectBench = Awaited<ReturnType<typeof openDisconnectBench>>;

/** `end` closes everything, and fails if a secret has leaked. */
export async function openDisconnectBench() {
  const { db, drop } = await openTestDatabase();
  const watch = openSecretWatch();
  const masterKey = randomBytes(32).toString('base64');
  watch.made('client_secret', clientSecret);
  const vault = watchedVault(openVault(readMasterKeys(`k1:${masterKey}`, []) ?? []), watch);
  const reading = { vault, catalog, testClient: undefined };
  const environments = {
    dev: (await ensureEnvironment(db, { name: 'dev', vault })).environment,
    prod: (await ensureEnvironment(db, { name: 'prod', vault })).environment,
  };
  const provider = await startProvider();
  const clock = { now: new Date('2026-11-21T09:00:00Z') };
  const deps = {
    db,
    reading,
    reader: createConnectionReader({ db, reading }),
    log: createLog({ level: 'trace', format: 'json' }, watch.log),
    fetchFor: watch.watched(() => provider.fetch),
    now: () => clock.now,
  };

  return {
    db,
    deps,
    provider,
    environments,
    advance(ms: number) {
      clock.now = new Date(clock.now.getTime() + ms);
    },
    integrate: (
      key: string,
      { environment = 'dev', provider: name = 'google-sheet', client = '111-a' }: IntegrationGiven = {},
    ) =>
      createIntegration(db, {
        ...reading,
        environmentId: environments[environment].id,
        key,
        provider: name,
        ...(client !== null && { client: { clientId: `${client}.${host}`, clientSecret } }),
      }),
    /** `client`: the connection's own OAuth client. */
    async connect(integration: Integration, account?: string, client?: string) {
      const credentials = {
        type: 'OAUTH2' as const,
        access_token: `access-${randomBytes(8).toString('hex')}`,
        refresh_token: `refresh-${randomBytes(8).toString('hex')}`,
        ...(client !== undefined && {
          config_override: { client_id: `${client}.${host}`, client_secret: clientSecret },
        }),
        raw: {},
      };
      watch.madeIn(credentials);
      return db.transaction((tx) =>
        insertConnection(tx, {
          vault,
          integration,
          credentials,
          grant: {
            ...(account !== undefined && { account: { id: account, email: `${account}@example.com` } }),
          },
          at: clock.now,
        }),
      );
    },
    /** Forgets all connections, so that none shares a grant with one of the next test. */
    async clear() {
      await watch.readDatabase(db);
      await db.query('truncate connection, revocation, exchange, event cascade');
    },
    disconnect: (connection: Connection, revoke: RevokeChoice = 'auto', confirmedOthers = 0) =>
      disconnect(deps, {
        at: connection,
        caller: callerIn(connection.environmentId),
        revoke,
        confirmedOthers,
      }),
    now: (connection: Connection) => findConnection(db, { ...connection, vault }),
    /** The token endpoint accepts the token, also after a revocation, and answers when a next token is set. */
    async refresh(connection: Connection, next: Promise<string | undefined> = Promise.resolve(undefined)) {
      const { reader, log } = deps;
      const answer = async () => {
        const refreshToken = await next;
        const tokens = { access_token: 'access-2', token_type: 'Bearer', expires_in: 3600 };
        return Response.json({
          ...tokens,
          ...(refreshToken !== undefined && { refresh_token: refreshToken }),
        });
      };
      const credentials = createCredentialSource({
        db,
        reader,
        vault,
        log,
        now: deps.now,
        transitions: createStatusTransitions({ db, reader, log, now: deps.now }),
        fetchFor: watch.watched(() => answer as unknown as Fetch),
      });
      reader.forget(connection);
      await credentials.refreshed(await reader.get(connection));
    },
    runJob: () => revocationJob(deps).run({}, new AbortController().signal),
    async eventsOf(type: string, environment: 'dev' | 'prod' = 'dev') {
      const rows = await db.query<{ data: Record<string, unknown> }>(
        'select data from event where type = $1 and environment_id = $2 order by created_at',
        [type, environments[environment].id],
      );
      return rows.map(({ data }) => data);
    },
    async auditOf(action: string, environment: 'dev' | 'prod' = 'dev') {
      const rows = await db.query<{ target: string }>(
        'select target from audit where action = $1 and environment_id = $2 order by created_at, id',
        [action, environments[environment].id],
      );
      return rows.map(({ target }) => target);
    },
    waiting: () =>
      db.query<{ attempts: number; evidence: unknown }>(
        'select attempts, evidence from revocation order by id',
      ),
    async end() {
      await provider.close();
      await drop();
      watch.assertClean();
    },
  };
}

type IntegrationGiven = { environment?: 'dev' | 'prod'; provider?: string; client?: string | null };

export function tokenOf({ credentials }: Connection): string {
  if (credentials.type !== 'OAUTH2') throw new TypeError('no OAuth connection');
  return credentials.refresh_token ?? '';
}

function callerIn(environmentId: number): Caller {
  return { kind: 'key', environmentId, environment: 'dev', keyId: 1, scopes: new Set(['*']) };
}

/** Google's revocation endpoint at any address. */
async function startProvider() {
  const revoked: string[] = [];
  type Answer = [status: number, body: unknown, headers?: Record<string, string>];
  const state: { answer: (token: string) => Promise<Answer> } = { answer: async () => [200, {}] };
  const server = createServer(async (request, response) => {
    const chunks = await Array.fromAsync(request as AsyncIterable<Buffer>);
    const token = new URLSearchParams(Buffer.concat(chunks).toString()).get('token') ?? '';
    revoked.push(token);
    const [status, body, headers] = await state.answer(token);
    if (status === 0) request.socket.destroy();
    else {
      response.writeHead(status, { 'content-type': 'application/json', ...headers });
      response.end(JSON.stringify(body));
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    /** The tokens of all revocations that arrived. */
    revoked,
    answers(status: number, body: unknown = {}, headers: Record<string, string> = {}) {
      state.answer = async () => [status, body, headers];
    },
    /** Treats these tokens as invalid; answers others with `status`. */
    knowsAsDead(tokens: string[], status = 200) {
      const dead: Answer = [400, { error: 'invalid_token', error_description: 'Token expired or revoked' }];
      state.answer = async (token) => (tokens.includes(token) ? dead : [status, {}]);
    },
    /** Closes the socket instead of an answer. */
    hangsUp() {
      state.answer = async () => [0, {}];
    },
    answersWhen(ready: Promise<unknown>) {
      state.answer = () => ready.then(() => [200, {}]);
    },
    fetch: ((url, init) => fetch(url.replace('https://oauth2.googleapis.com', origin), init)) as Fetch,
    close() {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}
