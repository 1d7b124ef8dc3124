/**
 * Registers the routes of all modules, on nodes that serve the interface, and the authentication of callers.
 *
 * Effects that a lower module triggers in a higher one are passed in here: what follows a deletion, for `connections/`;
 * the user of a cookie, for `http/`.
 */
import { auditRoutes } from '../activity/audit-routes.ts';
import { activityRoutes } from '../activity/routes.ts';
import { tailRoute } from '../activity/tail-route.ts';
import { connectRoutes } from '../connect/routes.ts';
import { createSessionReader } from '../connect/sessions.ts';
import { findSunsets } from '../connections/health/warnings.ts';
import { connectionRoutes } from '../connections/routes/routes.ts';
import { countByIntegration, noConnections } from '../connections/store/list.ts';
import { deliveryRoutes } from '../deliveries/delivery-routes.ts';
import { endpointRoutes, guardOverrides } from '../deliveries/endpoint-routes.ts';
import { settingsRoutes } from '../deliveries/settings-routes.ts';
import { createKeyRates } from '../environments/key-rates.ts';
import { createKeyReader } from '../environments/key-reader.ts';
import { keyRoutes } from '../environments/key-routes.ts';
import { environmentRoutes } from '../environments/routes.ts';
import { variableRoutes } from '../environments/variable-routes.ts';
import { eventRoutes } from '../events/routes.ts';
import { actionRoutes } from '../functions/actions/action-routes.ts';
import { mcpRoutes } from '../functions/actions/mcp-routes.ts';
import { configRoutes } from '../functions/config-routes.ts';
import { deployRoutes } from '../functions/deploys/deploy-routes.ts';
import { shippedRoutes } from '../functions/deploys/shipped-routes.ts';
import { overviewRoutes } from '../functions/overview-routes.ts';
import { functionRoutes } from '../functions/routes.ts';
import { runRoutes } from '../functions/runs/run-routes.ts';
import { syncRoutes } from '../functions/syncs/sync-routes.ts';
import { createLoopbackGuard } from '../http/address.ts';
import { createCookieAuthenticator, proxyCallerOf } from '../http/auth/caller.ts';
import { Overload } from '../http/limits/overload.ts';
import { createRateLimits } from '../http/limits/rate-limit.ts';
import { staticRoutes, type Web } from '../http/pages/static.ts';
import { type App, createHttp, strictTransport } from '../http/server.ts';
import { repeatAnswers } from '../idempotency/idempotency.ts';
import { integrationRoutes } from '../integrations/routes.ts';
import { providersDirectory } from '../providers/catalog.ts';
import { definitionRoutes } from '../providers/definition-routes.ts';
import { providerRoutes } from '../providers/routes.ts';
import { createProxy } from '../proxy/proxy.ts';
import { quotaUse } from '../proxy/quota/quota.ts';
import { proxyRoutes } from '../proxy/routes.ts';
import { recordRoutes } from '../records/routes/routes.ts';
import { setUpRoutes } from '../setup/routes.ts';
import { invitationRoutes } from '../users/invitation-routes.ts';
import { everybodysRights, storedRights } from '../users/members.ts';
import { createPasswords } from '../users/passwords.ts';
import { createPersonReader, everybodyIsOwner } from '../users/person-reader.ts';
import { userRoutes } from '../users/routes.ts';
import { createRefusedSignIns, signInRoutes } from '../users/sign-in-routes.ts';
import { cookiePrefix, lazySignIn, signInSecret } from '../users/sign-in-rules.ts';
import { webhookRoutes } from '../webhooks/routes.ts';
import type { Functions } from './functions.ts';
import { homeRoutes } from './home-routes.ts';
import type { Parts } from './parts.ts';

type Callers = Awaited<ReturnType<typeof createCallers>>;

/** Authentication by keys, tickets, sessions and cookies, and the limits of callers. */
export async function createCallers({ config, log, db, vault, outbound, ...parts }: Parts) {
  const { brand, baseUrl, mailer, now, nowMs, steadyMs } = parts;
  const keys = createKeyReader({ db, vault, now: nowMs, clock: steadyMs });
  const passwords = createPasswords();
  const signIn = lazySignIn({
    config,
    db,
    log,
    now,
    passwords,
    secret: await signInSecret(db, vault),
    fetch: outbound.fetchFor({ isTest: false, purpose: 'sign-in' }),
    mailer,
    afterChange: () => people.forget(),
  });
  const people = createPersonReader({
    signIn,
    db,
    cookieName: `${cookiePrefix(parts)}.session_token`,
    clock: steadyMs,
  });
  const personOf = config.signIn.isOff ? everybodyIsOwner(db) : people.personOf;
  const rights = config.signIn.isOff ? everybodysRights : storedRights;
  const cookies = createCookieAuthenticator({ brand, baseUrl, personOf });
  const keyRates = createKeyRates({ db, nowMs: steadyMs });
  const { trustedProxies } = config;
  return {
    keys,
    keyRates,
    mailer,
    passwords,
    signIn,
    people,
    rights,
    cookies,
    rates: createRateLimits({
      ...config.limits,
      ofKey: keyRates.take,
      trustedProxies,
      nowMs: steadyMs,
    }),
    authenticate: { ...keys, session: createSessionReader({ db, brand, now }), cookies },
    guard: config.signIn.isOff ? createLoopbackGuard(baseUrl) : undefined,
  };
}

/** A server with authentication and the proxy, without routes. */
export async function createServer(parts: Parts, callers: Callers): Promise<App> {
  const { config, log, db, baseUrl, isRootAlias, proxying } = parts;
  const { authenticate, guard, rates, keyRates } = callers;
  const interceptor = createProxy({
    ...proxying,
    authenticate,
    rates,
    ownOnly: Object.entries(strictTransport(baseUrl)).flat(),
  });
  const { overloadDelayMs, maxConnections, bodyBytes } = config.limits;
  const overload =
    overloadDelayMs === undefined
      ? undefined
      : new Overload({ maxDelayMs: overloadDelayMs, maxWaiting: maxWaitingForDatabase });
  const limits = { rates, overload, maxConnections, bodyBytes };
  const app = await createHttp({ config, log, authenticate, isRootAlias, interceptor, guard, limits });
  app.addHook('onListen', async () => overload?.watch(() => db.load().waiting));
  app.addHook('preClose', async () => overload?.stop());
  app.addHook('onClose', () => keyRates.stop());
  return app;
}

/** With 16 connections, and a few milliseconds a statement, the last waiter waits for most of a second. */
const maxWaitingForDatabase = 1_000;

/** The whole interface, except whether the node lives. */
export async function addRoutes(
  app: App,
  {
    parts,
    callers,
    functions,
    web,
    afterConnectionDeleted,
  }: {
    parts: Parts;
    callers: Callers;
    functions: Functions;
    web: Web;
    /** Sets off the removal of a deleted connection's records. Never awaited. */
    afterConnectionDeleted: () => void;
  },
): Promise<void> {
  const { config, log, db, vault, catalog, outbound, brand, baseUrl, now, reading, reader } = parts;
  const { fetchFor, activity, credentials, deliverer, callbackBaseUrl, webhookBaseUrl } = parts;
  const { keys, mailer, passwords, signIn, people, rights, cookies, guard, rates } = callers;
  const { runner, hooks, actions, deploys, shipped, open } = functions;

  repeatAnswers(app, { db, vault, now });
  guardOverrides(app, { outbound });
  await staticRoutes(app, { web, brand, baseUrl, frameAncestors: config.connectFrameAncestors });
  const ofUsers = { config, db, signIn, mailer, rights, now, afterChange: people.forget };
  signInRoutes(app, { signIn, passwords, config, refused: createRefusedSignIns({ db, log, now }) });
  userRoutes(app, ofUsers);
  invitationRoutes(app, ofUsers);
  environmentRoutes(app, {
    db,
    vault,
    now,
    requireOwner: rights.requireOwner,
    afterChange: () => {
      people.forget();
      keys.forgetAll();
    },
  });
  variableRoutes(app, { db, vault });
  keyRoutes(app, {
    db,
    now,
    perKey: config.limits.perKey,
    requireRole: rights.requireRole,
    afterChange: keys.forget,
  });
  providerRoutes(app, {
    db,
    catalog,
    baseUrl,
    callbackBaseUrl,
    directories: [...(config.providersDir === undefined ? [] : [config.providersDir]), providersDirectory],
  });
  definitionRoutes(app, { db, catalog, baseUrl, callbackBaseUrl, now });
  integrationRoutes(app, {
    db,
    reading,
    baseUrl,
    webhookBaseUrl,
    now,
    afterChange: (at) => reader.forgetIntegration(at),
    usageOf: async ({ environmentId, integrations }) => {
      const counts = await countByIntegration(db, environmentId);
      const quotas = await quotaUse(db, integrations);
      const sunsets = await findSunsets(db, { integrations, at: now() });
      return ({ id }) => ({
        connections: counts.get(id) ?? noConnections(),
        quota: quotas.get(id) ?? [],
        sunsets: sunsets.get(id) ?? [],
      });
    },
  });
  connectionRoutes(app, {
    db,
    reading,
    reader,
    credentials,
    hooks,
    fetchFor: outbound.fetchFor,
    log,
    now,
    afterDelete: afterConnectionDeleted,
  });
  await connectRoutes(app, {
    db,
    reading,
    reader,
    hooks,
    fetchFor,
    brand,
    baseUrl,
    log,
    activity,
    now,
    guard,
    callbackBaseUrl,
    trustedProxies: config.trustedProxies,
  });
  proxyRoutes(app, { db, vault, connections: reader, now });
  recordRoutes(app, { db, brand, connections: reader, activity, now });
  endpointRoutes(app, { db, outbound, mailer, sendTest: deliverer.sendTest, now });
  deliveryRoutes(app, { db, now });
  settingsRoutes(app, { db, vault, outbound, now, afterRotation: deliverer.forgetKeys });
  eventRoutes(app, { db });
  activityRoutes(app, { db, vault, now, activity, kept: parts.config.activity });
  tailRoute(app, {
    db,
    now,
    authorizeAgain: async (request) =>
      proxyCallerOf(request, {
        authenticate: { key: keys.reread, ticket: keys.ticket, cookies },
        scope: 'activity:read',
      }),
  });
  auditRoutes(app, { db });
  functionRoutes(app, { db, now, open });
  overviewRoutes(app, { db, vault, now, open });
  homeRoutes(app, { db, reading });
  configRoutes(app, { db, open });
  deployRoutes(app, { ...deploys, open });
  shippedRoutes(app, { catalog, shipped, open });
  syncRoutes(app, { db, vault, reader, now, poke: runner.poke, open });
  runRoutes(app, { db, vault, now, poke: runner.poke, open });
  actionRoutes(app, { actions, connections: reader, open });
  setUpRoutes(app, {
    db,
    vault,
    reading,
    brand,
    now,
    actions,
    shipped,
    open,
    connections: reader,
    poke: runner.poke,
  });
  mcpRoutes(app, {
    actions,
    connections: reader,
    open,
    authenticate: { key: keys.key, ticket: keys.ticket },
    rates,
    origins: [new URL(baseUrl).origin, ...config.functions.mcpOrigins],
  });
  await webhookRoutes(app, {
    db,
    reading,
    reader,
    credentials,
    webhookBaseUrl,
    log,
    now,
    fetchFor: outbound.fetchFor,
    receiving: {
      db,
      vault,
      brand,
      connections: reader,
      poke: runner.poke,
      log,
      now,
      isOn: config.functions.isOn,
    },
  });
}
