/**
 * The sandbox put together: opens its state, wires OAuth, control routes, pages and APIs to one HTTP server.
 *
 * Owns the route table and the order of start and stop. What a route does lives in oauth/, control.ts and the
 * APIs; main.ts is this with the Sheets API, and the program.
 */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { bearerToken, checkAccess } from './access.ts';
import { Accounts, EXAMPLE_ACCOUNTS } from './accounts.ts';
import type { Api } from './api.ts';
import { createCalls } from './calls.ts';
import { Clients } from './clients.ts';
import { createClock } from './clock.ts';
import { answerControl, refuseControl } from './control/door.ts';
import { CONTROL_ROUTES, type ControlParts, type CreateSpreadsheet } from './control/routes.ts';
import { answerUnder, Faults } from './faults.ts';
import { Grants } from './grants.ts';
import { createHttpServer, type FindRoute, json, type Reply, type Route } from './http.ts';
import { AUTHORIZATION_PATH, Authorize } from './oauth/authorize.ts';
import { Codes } from './oauth/codes.ts';
import { Consent } from './oauth/consent.ts';
import { discoveryDocument } from './oauth/discovery.ts';
import { createIdTokens, generateSigningKey, loadSigningKey } from './oauth/id-token.ts';
import { answerTokeninfo, answerUserinfo, answerUserinfoV2 } from './oauth/identity.ts';
import { CONSENT_PATH } from './oauth/pages.ts';
import { answerRevoke } from './oauth/revoke.ts';
import { answerToken } from './oauth/token.ts';
import { closedOverviewPage, overviewPage } from './overview.ts';
import { createSave, readSnapshot } from './state.ts';
import { Tokens } from './tokens.ts';

/** How a sandbox is started. */
export interface SandboxOptions {
  /** Default 127.0.0.1. */
  host?: string;
  /** 0 takes a free port. */
  port: number;
  /** The address by which browsers and the service reach it, and its issuer; default http://localhost:{port}. */
  url?: string;
  /** Where accounts, grants, tokens and spreadsheets live; made when absent. One sandbox at a time. */
  dataDir: string;
  /** Demanded as a bearer token on /_sandbox when given. */
  key?: string;
  /** Redirect addresses of the built-in client besides the loopback ones. */
  redirectUris?: string[];
  /** Called for each fault of the sandbox itself; default: nothing. */
  log?: (message: string, error: unknown) => void;
}

/** A sandbox that answers. */
export interface Sandbox {
  url: string;
  port: number;
  /** The built-in client, the same at every start on a data dir. */
  client: { clientId: string; clientSecret: string };
  /** Breaks off what is under way, writes everything and resolves when nothing is left open; may be called twice. */
  close(): Promise<void>;
}

/** The APIs that are served beside OAuth. */
export interface MountedApis {
  apis: Api[];
  createSpreadsheet: CreateSpreadsheet;
  countSpreadsheets: () => Promise<number>;
}

const FORM_LIMIT = 64 * 1024;
const API_LIMIT = 32 * 1024 * 1024;
const CONTROL_LIMIT = 64 * 1024 * 1024;
const CONTROL_PREFIX = '/_sandbox';

/**
 * Starts a sandbox with the given APIs. Rejects when the port is taken or the data dir cannot be read.
 *
 * `mount` is called once the address is known and must not wait: no request may come before its routes.
 */
export async function serveSandbox(
  options: SandboxOptions,
  mount: (at: { url: string; now: () => number }) => MountedApis,
): Promise<Sandbox> {
  const saved = await readSnapshot(options.dataDir);
  const signingKey = await loadSigningKey(saved?.signingKey ?? (await generateSigningKey()));
  const clock = createClock(Date.now);
  const calls = createCalls();
  const faults = new Faults();
  const accounts = new Accounts(saved?.accounts ?? []);
  if (saved === undefined) for (const account of EXAMPLE_ACCOUNTS) accounts.add(account);
  const clients = new Clients(saved ?? { projects: [], clients: [] });
  clients.addRedirectUris(clients.builtIn(), options.redirectUris ?? []);
  const grants = new Grants(saved?.grants ?? []);
  const tokens = new Tokens(clock, saved ?? { accessTokens: [], refreshTokens: [] });
  const codes = new Codes(clock);
  const save = createSave(options.dataDir, () => ({
    version: 1,
    signingKey: signingKey.jwk,
    accounts: accounts.list(),
    projects: clients.listProjects(),
    clients: clients.list(),
    grants: grants.list(),
    ...tokens.snapshot(),
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
  const consent = new Consent({ accounts, grants, codes, faults, clock, issuer: url });
  const authorize = new Authorize({ clients, accounts, faults, consent, save });
  const parts = {
    url,
    accounts,
    clients,
    grants,
    tokens,
    codes,
    faults,
    idTokens,
    clock,
    calls,
    authorize,
    consent,
    save,
  };

  const form = (answer: Route['answer']): Route => ({ bodyLimitBytes: FORM_LIMIT, answer });
  const showOverview = async (): Promise<Reply> =>
    options.key === undefined
      ? overviewPage({ ...parts, spreadsheetCount: await mounted.countSpreadsheets() })
      : closedOverviewPage();
  const routes = new Map<string, Route>(
    Object.entries({
      'GET /': form(showOverview),
      [`GET ${AUTHORIZATION_PATH}`]: form((request) => authorize.show(request)),
      [`POST ${CONSENT_PATH}`]: form((request) => authorize.decide(request)),
      'POST /token': form((request) => answerToken(request, parts)),
      'POST /oauth2/v4/token': form((request) => answerToken(request, parts)),
      'POST /revoke': form((request) => answerRevoke(request, parts)),
      'GET /v1/userinfo': form((request) => answerUserinfo(request, parts)),
      'POST /v1/userinfo': form((request) => answerUserinfo(request, parts)),
      'GET /oauth2/v2/userinfo': form((request) => answerUserinfoV2(request, parts)),
      'GET /tokeninfo': form((request) => answerTokeninfo(request, parts)),
      'POST /tokeninfo': form((request) => answerTokeninfo(request, parts)),
      'GET /oauth2/v3/certs': form(() => json(200, idTokens.publicKeys())),
      'GET /.well-known/openid-configuration': form(() => json(200, discoveryDocument(url))),
    }),
  );
  const controlParts: ControlParts = { ...parts, createSpreadsheet: mounted.createSpreadsheet };
  for (const [name, route] of Object.entries(CONTROL_ROUTES)) {
    routes.set(name.replace(' ', ` ${CONTROL_PREFIX}`), {
      bodyLimitBytes: CONTROL_LIMIT,
      refuse: (head) => refuseControl(head, options.key),
      answer: (request) => answerControl(() => route(request, controlParts)),
    });
  }

  findRoute = (method, path) => {
    const route = routes.get(`${method} ${path}`);
    if (route !== undefined) {
      if (!path.startsWith(`${CONTROL_PREFIX}/`)) calls.count(`${method} ${path}`);
      return route;
    }
    const api = mounted.apis.find((candidate) => candidate.matches(path));
    if (api === undefined) return undefined;
    calls.count(`${method} ${api.routeOf(method, path)}`);
    return { bodyLimitBytes: API_LIMIT, answer: (request) => answerApi(api, { request, parts }) };
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

async function answerApi(
  api: Api,
  on: {
    request: Parameters<Route['answer']>[0];
    parts: { tokens: Tokens; accounts: Accounts; clients: Clients; faults: Faults };
  },
): Promise<Reply> {
  const { request, parts } = on;
  const { authorization } = request.headers;
  let access = checkAccess(authorization, parts);
  const clientId = access.ok ? access.clientId : undefined;
  const subject = { sub: access.ok ? access.sub : undefined, clientId };
  if (access.ok && parts.faults.strikes('access_token_ended', subject)) {
    parts.tokens.endAccess(bearerToken(authorization)!);
    access = { ok: false, kind: 'invalid' };
  }
  const client = parts.clients.find(clientId ?? '') ?? parts.clients.builtIn();
  return answerUnder(parts.faults.takeAt(['api'], subject), {
    signal: request.signal,
    projectNumber: client.projectNumber,
    work: () => api.handle({ ...request, access }),
  });
}
