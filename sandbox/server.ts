/**
 * The server of the sandbox: loads its state, connects OAuth, control routes, page and APIs to one HTTP server, and owns the
 * route table and the order of start and stop. main.ts adds the Sheets and Drive APIs.
 */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { AccountChanges } from './account-changes.ts';
import { Accounts, exampleAccounts } from './accounts.ts';
import { type Api, bearerToken, checkAccess } from './api.ts';
import { answerAws } from './aws.ts';
import { type Call, Calls, Refreshes } from './calls.ts';
import { Clients } from './clients.ts';
import { type Clock, createClock } from './clock.ts';
import { answerControl, refuseControl } from './control/answer.ts';
import type { ControlParts, Spreadsheets } from './control/parts.ts';
import { controlRoutes } from './control/routes.ts';
import type { Channels } from './drive/channels.ts';
import { answerUnder, Faults } from './faults/faults.ts';
import { Grants } from './grants.ts';
import { createHttpServer, type FindRoute, type Incoming, json, type Reply, type Route } from './http.ts';
import { Authorize, authorizationPath } from './oauth/authorize.ts';
import { Codes } from './oauth/codes.ts';
import { Consent } from './oauth/consent.ts';
import { createIdTokens, generateSigningKey, loadSigningKey } from './oauth/id-token.ts';
import { answerTokeninfo, answerUserinfo, answerUserinfoV2, discoveryDocument } from './oauth/identity.ts';
import { answerLogin } from './oauth/login.ts';
import { consentPath } from './oauth/pages.ts';
import { answerRevoke, answerToken, type TokenParts } from './oauth/token.ts';
import { createPage } from './page/page.ts';
import { Quota } from './quota.ts';
import { Receivers, riscDocument, SecurityEvents } from './security-events.ts';
import { createSave, readSnapshot } from './state.ts';
import { Tokens } from './tokens.ts';

export interface SandboxOptions {
  /** Default 127.0.0.1. */
  host?: string;
  /** 0 selects a free port. */
  port: number;
  /** The address for browsers and the service, and the issuer; default http://localhost:{port}. */
  url?: string;
  /** The directory of accounts, grants, tokens and spreadsheets; created if absent. For one sandbox at a time. */
  dataDir: string;
  /** If set, required as a bearer token on /_sandbox. */
  key?: string;
  /** Redirect URIs of the built-in client in addition to the loopback addresses. */
  redirectUris?: string[];
  /** Called for each unexpected error of the sandbox. */
  log?: (message: string, error: unknown) => void;
}

/** A running sandbox. */
export interface Sandbox {
  url: string;
  port: number;
  /** The built-in client, the same at each start with the same data dir. */
  client: { clientId: string; clientSecret: string };
  /** Aborts open requests, writes the state and resolves once everything is closed. May be called twice. */
  close(): Promise<void>;
}

/** The APIs in addition to OAuth. */
interface MountedApis {
  apis: Api[];
  spreadsheets: Spreadsheets;
  channels: Channels;
}

const formLimit = 64 * 1024;
const apiLimit = 32 * 1024 * 1024;
const controlLimit = 64 * 1024 * 1024;
const controlPrefix = '/_sandbox';

/**
 * Starts a sandbox with the given APIs. Rejects if the port is in use or the data dir cannot be read.
 *
 * `mount` is called once the address is known. It is synchronous, so that no request arrives before its routes exist.
 */
export async function serveSandbox(
  options: SandboxOptions,
  mount: (at: { url: string; now: () => number }) => MountedApis,
): Promise<Sandbox> {
  const saved = await readSnapshot(options.dataDir);
  const signingKey = await loadSigningKey(saved?.signingKey ?? (await generateSigningKey()));
  const clock = createClock(Date.now);
  const calls = new Calls();
  const faults = new Faults(clock);
  const quota = new Quota(clock);
  const refreshes = new Refreshes();
  const accounts = new Accounts(saved?.accounts ?? []);
  if (saved === undefined) for (const account of exampleAccounts) accounts.add(account);
  const clients = new Clients(saved ?? { projects: [], clients: [] });
  clients.addRedirectUris(clients.builtIn(), options.redirectUris ?? []);
  const grants = new Grants(saved?.grants ?? []);
  const tokens = new Tokens(clock, saved ?? { accessTokens: [], refreshTokens: [] });
  const codes = new Codes(clock);
  const receivers = new Receivers(saved?.receivers ?? []);
  const save = createSave(options.dataDir, () => ({
    version: 1,
    signingKey: signingKey.jwk,
    accounts: accounts.list(),
    projects: clients.listProjects(),
    clients: clients.list(),
    grants: grants.list(),
    ...tokens.snapshot(),
    receivers: receivers.list(),
  }));
  await save();

  const closing = new AbortController();
  let findRoute: FindRoute = () => undefined;
  let isAllowedHost: (host: string) => boolean = () => false;
  const server = createHttpServer({
    findRoute: (method, path) => findRoute(method, path),
    isAllowedHost: (host) => isAllowedHost(host),
    closing: closing.signal,
    log: options.log ?? (() => {}),
  });
  server.listen(options.port, options.host ?? '127.0.0.1');
  await once(server, 'listening');

  const { port } = server.address() as AddressInfo;
  const url = (options.url ?? `http://localhost:${port}`).replace(/\/$/, '');
  const mounted = mount({ url, now: clock.now });
  const idTokens = createIdTokens({ signingKey, issuer: url, clock });
  const consent = new Consent({ clients, accounts, grants, codes, faults, clock, issuer: url });
  const authorize = new Authorize({ clients, accounts, faults, consent, save });
  const securityEvents = new SecurityEvents({ signingKey, issuer: url, clock, closing: closing.signal });
  const accountChanges = new AccountChanges({
    accounts,
    clients,
    grants,
    tokens,
    receivers,
    securityEvents,
    save,
  });
  const parts = {
    url,
    accounts,
    accountChanges,
    clients,
    grants,
    tokens,
    codes,
    faults,
    refreshes,
    idTokens,
    clock,
    calls,
    authorize,
    consent,
    quota,
    receivers,
    securityEvents,
    spreadsheets: mounted.spreadsheets,
    channels: mounted.channels,
    save,
  } satisfies ControlParts & TokenParts;

  const form = (answer: Route['answer']): Route => ({ bodyLimitBytes: formLimit, answer });
  const page = createPage(parts, options.key);
  const routes = new Map<string, Route>(
    Object.entries({
      'GET /': form(page.show),
      'POST /': form(page.act),
      [`GET ${authorizationPath}`]: form((request) => authorize.show(request)),
      [`POST ${consentPath}`]: form((request) => authorize.decide(request)),
      'POST /token': form((request) => answerToken(request, parts)),
      'POST /oauth2/v4/token': form((request) => answerToken(request, parts)),
      'POST /login': form((request) => answerLogin(request, parts)),
      'POST /login/renewal': form((request) => answerLogin(request, parts)),
      'POST /revoke': form((request) => answerRevoke(request, parts)),
      'GET /v1/userinfo': form((request) => answerUserinfo(request, parts)),
      'POST /v1/userinfo': form((request) => answerUserinfo(request, parts)),
      'GET /oauth2/v2/userinfo': form((request) => answerUserinfoV2(request, parts)),
      'GET /tokeninfo': form((request) => answerTokeninfo(request, parts)),
      'POST /tokeninfo': form((request) => answerTokeninfo(request, parts)),
      'GET /oauth2/v3/certs': form(() => json(200, idTokens.publicKeys())),
      'GET /.well-known/openid-configuration': form(() => json(200, discoveryDocument(url))),
      'GET /.well-known/risc-configuration': form(() => json(200, riscDocument(url))),
    }),
  );
  for (const [name, route] of Object.entries(controlRoutes)) {
    routes.set(name.replace(' ', ` ${controlPrefix}`), {
      bodyLimitBytes: controlLimit,
      refuse: (head) => refuseControl(head, options.key),
      answer: (request) => answerControl(() => route(request, parts)),
    });
  }

  findRoute = (method, path) => {
    const name = `${method} ${path}`;
    const route = routes.get(name);
    // The control routes and the page are not part of the provider, so they are not counted.
    if (path === '/' || path.startsWith(`${controlPrefix}/`)) return route;
    if (route !== undefined) return counted(route, { name, calls, clock });
    if (path.startsWith('/aws/')) {
      const answer = (request: Incoming) => answerAws(request, parts);
      return counted({ bodyLimitBytes: apiLimit, answer }, { name: `${method} /aws`, calls, clock });
    }
    const api = mounted.apis.find((candidate) => candidate.matches(path));
    if (api === undefined) return undefined;
    const answer = (request: Incoming) => answerApi(request, { ...parts, api });
    const apiName = `${method} ${api.routeOf(method, path)}`;
    return counted({ bodyLimitBytes: apiLimit, answer }, { name: apiName, calls, clock });
  };
  const ownHost = new URL(url).host;
  isAllowedHost = (host) =>
    host.toLowerCase() === ownHost || /^(localhost|127\.0\.0\.1)(:\d{1,5})?$/i.test(host);

  const close = async () => {
    closing.abort();
    const serverClosed = once(server, 'close');
    server.close();
    server.closeAllConnections();
    await serverClosed;
    await Promise.all([save(), ...mounted.apis.map((api) => api.close())]);
  };
  let closed: Promise<void> | undefined;
  const { clientId, clientSecret } = clients.builtIn();
  return {
    url,
    port,
    client: { clientId, clientSecret },
    close: () => {
      closed ??= close();
      return closed;
    },
  };
}

/** A route whose requests are counted at their start and recorded at their end. */
function counted(route: Route, by: { name: string; calls: Calls; clock: Clock }): Route {
  by.calls.count(by.name);
  const note = ({ about }: Incoming, outcome: Call['outcome']) =>
    by.calls.record({ at: by.clock.now(), route: by.name, ...about, outcome });
  return {
    ...route,
    answer: async (request) => {
      try {
        const reply = await route.answer(request);
        note(request, reply.cut === undefined ? reply.status : cuts[reply.cut]);
        return reply;
      } catch (error) {
        note(request, request.signal.aborted ? 'gone' : 500);
        throw error;
      }
    },
  };
}

const cuts = { before: 'reset', halfway: 'cut' } as const;

/** Handles a request to an API: checks its token, applies faults and quota, and calls the API. */
async function answerApi(
  request: Incoming,
  by: { api: Api; tokens: Tokens; accounts: Accounts; clients: Clients; faults: Faults; quota: Quota },
): Promise<Reply> {
  const { about } = request;
  const { authorization } = request.headers;
  let access = checkAccess(authorization, by);
  if (access.ok) Object.assign(about, { sub: access.sub, clientId: access.clientId });
  if (access.ok && by.faults.applies('access_token_ended', about)) {
    by.tokens.endAccess(bearerToken(authorization)!);
    access = { ok: false, kind: 'invalid' };
  }
  const granted = access;
  const fault = by.faults.takeAt(['api'], about);
  const client = by.clients.find(about.clientId ?? '') ?? by.clients.builtIn();
  // Faults apply to valid tokens only; the log of calls also shows the owner of an ended token.
  if (!granted.ok) Object.assign(about, by.tokens.ownerOf(bearerToken(authorization) ?? ''));
  return answerUnder(fault, {
    signal: request.signal,
    projectNumber: client.projectNumber,
    work: async () => {
      const { projectNumber } = client;
      const refusal = granted.ok && by.quota.take({ ...request, sub: granted.sub, projectNumber });
      return refusal || by.api.handle({ ...request, access: granted });
    },
  });
}
