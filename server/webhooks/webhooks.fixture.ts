// The webhook routes on a real database, and an issuer on loopback with its keys and its token endpoint.

import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, type JWTPayload, SignJWT } from 'jose';
import { shippedCatalog as catalog } from '../../test/support/catalog.ts';
import { openTestDatabase } from '../../test/support/database.ts';
import { openSecretWatch } from '../../test/support/secret-watch.ts';
import { watchedVault } from '../../test/support/secret-watch-server.ts';
import { brandNames } from '../brand.ts';
import { readMasterKeys } from '../config/config.ts';
import { createStatusTransitions } from '../connections/health/status-transitions.ts';
import { createCredentialSource } from '../connections/refresh/credentials.ts';
import { createConnectionReader } from '../connections/store/reader.ts';
import { insertConnection, swapCredentials } from '../connections/store/save.ts';
import { type Connection, findConnection } from '../connections/store/store.ts';
import { createKeyReader } from '../environments/key-reader.ts';
import { ensureEnvironment } from '../environments/store.ts';
import { createHttp } from '../http/server.ts';
import { createIntegration, type Integration } from '../integrations/store.ts';
import { createLog } from '../log.ts';
import type { Fetch } from '../outbound/outbound.ts';
import { openVault } from '../vault.ts';
import { webhookRoutes } from './routes.ts';
import { retryJob } from './security-events/security-events.ts';

const risc = 'https://schemas.openid.net/secevent/risc/event-type/';
const clientSecret = 'GOCSPX-of-the-client';
export const clientId = '111-a.apps.googleusercontent.com';
export const issuer = 'https://accounts.google.com/';

export type WebhookBench = Awaited<ReturnType<typeof openWebhookBench>>;
type Claims = JWTPayload & { events?: Record<string, unknown> };

/** `end` closes everything, and fails where a secret got out. */
export async function openWebhookBench() {
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
  const provider = await startIssuer();
  const log = createLog({ level: 'trace', format: 'json' }, watch.log);
  const fetchFor = watch.watched(() => provider.fetch);
  const reader = createConnectionReader({ db, reading });
  let aheadMs = 0;
  const now = () => new Date(Date.now() + aheadMs);
  const credentials = createCredentialSource({
    db,
    reader,
    fetchFor,
    vault,
    log,
    now,
    transitions: createStatusTransitions({ db, log, reader, now }),
  });
  const brand = brandNames('trellis');
  const app = await createHttp({
    config: { brand, trustedProxies: [], baseUrl: 'http://localhost' },
    log,
    authenticate: {
      key: createKeyReader({ db, vault }).key,
      session: () => Promise.reject(new Error('no sessions here')),
    },
    isRootAlias: () => false,
  });
  const deps = { db, reading, reader, credentials, fetchFor, log, now };
  const receiving = { db, vault, brand, connections: reader, poke: () => {}, log, now, isOn: true };
  await webhookRoutes(app, { ...deps, receiving, webhookBaseUrl: 'http://localhost' });
  await app.listen({ host: '127.0.0.1', port: 0 });
  const baseUrl = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`;

  return {
    db,
    deps,
    provider,
    integrate: (key: string, environment: keyof typeof environments = 'dev', client = clientId) =>
      createIntegration(db, {
        ...reading,
        environmentId: environments[environment].id,
        key,
        provider: 'google-sheet',
        client: { clientId: client, clientSecret },
      }),
    /** An integration of any provider, with a secret for its webhooks, and one connection of this account. */
    async integrateFor(
      provider: string,
      of: { secret: string; account: string; email?: string | undefined; tags: Record<string, string> },
    ) {
      const integration = await createIntegration(db, {
        ...reading,
        environmentId: environments.dev.id,
        key: provider,
        provider,
        ...(of.secret !== '' && { webhookSecret: of.secret, client: { clientId, clientSecret: of.secret } }),
      });
      const connectionId = `connection-of-${provider}`;
      const credentials = { type: 'NONE' as const };
      const grant = { account: { id: of.account, email: of.email } };
      await db.transaction((tx) =>
        insertConnection(tx, {
          vault,
          integration,
          connectionId,
          credentials,
          grant,
          tags: of.tags,
          at: new Date(),
        }),
      );
      return connectionId;
    },
    baseUrl,
    clock: now,
    /** Moves the service's clock; that of the issuer stays. */
    advance(ms: number) {
      aheadMs += ms;
    },
    /** With `ownClient`, its ID, the grant is to a client of the connection's own. */
    connect(
      integration: Integration,
      account: string,
      refreshToken = randomBytes(12).toString('hex'),
      ownClient?: string,
    ) {
      const credentials = {
        type: 'OAUTH2' as const,
        access_token: `ya29.${randomBytes(12).toString('hex')}`,
        refresh_token: refreshToken,
        expires_at: new Date(Date.now() + 3600_000).toISOString(),
        ...(ownClient !== undefined && {
          config_override: { client_id: ownClient, client_secret: clientSecret },
        }),
        raw: {},
      };
      watch.madeIn(credentials);
      const grant = { account: { id: account } };
      return db.transaction((tx) =>
        insertConnection(tx, { vault, integration, credentials, grant, at: new Date() }),
      );
    },
    /** The connection as it is now. */
    async now(connection: Connection) {
      const found = await findConnection(db, { ...connection, vault });
      if (found === undefined) throw new Error('it is gone');
      return found;
    },
    /** Pushes what is given to the integration `sheets` of `dev`. */
    async push(token: string, { path = '/webhook/dev/sheets', type = 'application/secevent+jwt' } = {}) {
      const headers = { 'content-type': type };
      const answer = await fetch(baseUrl + path, { method: 'POST', headers, body: token });
      const text = await answer.text();
      const { status, headers: given } = answer;
      watch.answered(`POST ${path}`, { status, text, headers: given });
      return {
        status,
        text,
        headers: given,
        body: (text === '' ? {} : JSON.parse(text)) as Record<string, unknown>,
      };
    },
    /** What the job does so long after now. */
    retryAfter: (ms: number) =>
      retryJob({ ...deps, now: () => new Date(now().getTime() + ms) }).run({}, new AbortController().signal),
    /** A refresh that brought another refresh token. */
    rotate: (connection: Connection, refreshToken: string) =>
      swapCredentials(db, {
        current: connection,
        credentials: { type: 'OAUTH2', access_token: 'a', refresh_token: refreshToken, raw: {} },
        grant: {},
        at: new Date(),
      }),
    events: () =>
      db.query<{ type: string; environment: string; data: Record<string, unknown> }>(
        `select type, environment.name as environment, data
         from event
         join environment on environment.id = environment_id
         order by event.created_at`,
      ),
    /** Forgets all connections, so that none is that of an account of the next test. */
    async clear() {
      await watch.readDatabase(db);
      await db.query('truncate connection, event, security_event cascade');
    },
    async end() {
      await app.close();
      await provider.close();
      await drop();
      watch.assertClean();
    },
  };
}

/** The events of one type about one account, as Google writes them. */
export function about(account: string, type: string, more: object = {}): Record<string, unknown> {
  const subject = { subject_type: 'iss-sub', iss: issuer, sub: account };
  return { [risc + type]: { subject, ...more } };
}

async function startIssuer() {
  const keys = { own: await newKey('own'), foreign: await newKey('own'), next: await newKey('next') };
  const state = { served: [keys.own], status: 200, keyReads: 0, isGrantDead: false, isTokenDown: false };
  /** Certificates by the path below which they are served. */
  const certificates = new Map<string, string>();
  const server = createServer((request, response) => {
    const json = (status: number, body: unknown) =>
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    if (request.url === '/token') {
      if (state.isTokenDown) json(503, {});
      else if (state.isGrantDead) json(400, { error: 'invalid_grant' });
      else json(200, { access_token: 'access-token-2', expires_in: 3599, token_type: 'Bearer' });
      return;
    }
    const certificate = certificates.get(request.url ?? '');
    if (certificate !== undefined) {
      response.end(certificate);
      return;
    }
    state.keyReads += 1;
    json(state.status, { keys: state.served.map(({ jwk }) => jwk) });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    keys,
    state,
    certificates,
    fetch: ((url, init) => fetch(url.replace(/^https:\/\/[^/]+/, origin), init)) as Fetch,
    /** A token of this moment for the integration's client, with whatever else is claimed. */
    sign(claims: Claims, { key = keys.own, alg = 'RS256' } = {}): Promise<string> {
      const jti = randomBytes(8).toString('hex');
      const iat = Math.floor(Date.now() / 1000) + 1;
      return new SignJWT({ iss: issuer, aud: clientId, iat, jti, ...claims })
        .setProtectedHeader({ alg, kid: key.jwk.kid, typ: 'secevent+jwt' })
        .sign(key.privateKey);
    },
    close() {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}

async function newKey(kid: string) {
  const { privateKey, publicKey } = await generateKeyPair('RS256', { extractable: true });
  return { privateKey, jwk: { ...(await exportJWK(publicKey)), kid, use: 'sig' } };
}
