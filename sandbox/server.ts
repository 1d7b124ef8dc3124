/**
 * The sandbox put together: opens its state, wires OAuth, control routes, pages and APIs to one HTTP server.
 *
 * Owns the route table and the order of start and stop. What a route does lives in oauth/, control/, page/ and the
 * APIs; main.ts is this with the Sheets API, and the program.
 */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { AccountActs } from './account-acts.ts';
import { Accounts, EXAMPLE_ACCOUNTS } from './accounts.ts';
import { answerApi } from './answer-api.ts';
import type { Api } from './api.ts';
import { type Call, type Calls, createCalls } from './calls.ts';
import { Clients } from './clients.ts';
import { type Clock, createClock } from './clock.ts';
import { answerControl, refuseControl } from './control/answer.ts';
import type { ControlParts, PushChannels, Spreadsheets } from './control/parts.ts';
import { CONTROL_ROUTES } from './control/routes.ts';
import { Faults } from './faults/faults.ts';
import { Grants } from './grants.ts';
import { createHttpServer, type FindRoute, type Incoming, json, type Route } from './http.ts';
import { AUTHORIZATION_PATH, Authorize } from './oauth/authorize.ts';
import { Codes } from './oauth/codes.ts';
import { Consent } from './oauth/consent.ts';
import { discoveryDocument } from './oauth/discovery.ts';
import { createIdTokens, generateSigningKey, loadSigningKey } from './oauth/id-token.ts';
import { answerTokeninfo, answerUserinfo, answerUserinfoV2 } from './oauth/identity.ts';
import { CONSENT_PATH } from './oauth/pages.ts';
import { answerRevoke } from './oauth/revoke.ts';
import { answerToken, type TokenParts } from './oauth/token.ts';
import { createPage } from './page/page.ts';
import { Quota } from './quota.ts';
import { Receivers } from './receivers.ts';
import { Refreshes } from './refreshes.ts';
import { riscDocument, SecurityEvents } from './security-events.ts';
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
interface MountedApis {
  apis: Api[];
  spreadsheets: Spreadsheets;
  channels: PushChannels;
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
  const faults = new Faults(clock);
  const quota = new Quota(clock);
  const refreshes = new Refreshes();
  const accounts = new Accounts(saved?.accounts ?? []);
  if (saved === undefined) for (const account of EXAMPLE_ACCOUNTS) accounts.add(account);
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
  const acts = new AccountActs({ accounts, clients, grants, tokens, receivers, securityEvents, save });
  const parts = {
    url,
    accounts,
    acts,
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

  const form = (answer: Route['answer']): Route => ({ bodyLimitBytes: FORM_LIMIT, answer });
  const page = createPage(parts, options.key);
  const routes = new Map<string, Route>(
    Object.entries({
      'GET /': form(page.show),
      'POST /': form(page.act),
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
      'GET /.well-known/risc-configuration': form(() => json(200, riscDocument(url))),
    }),
  );
  for (const [name, route] of Object.entries(CONTROL_ROUTES)) {
    routes.set(name.replace(' ', ` ${CONTROL_PREFIX}`), {
      bodyLimitBytes: CONTROL_LIMIT,
      refuse: (head) => refuseControl(head, options.key),
      answer: (request) => answerControl(() => route(request, parts)),
    });
  }

  findRoute = (method, path) => {
    const name = `${method} ${path}`;
    const route = routes.get(name);
    // Neither the control routes nor the page are calls of the provider.
    if (path === '/' || path.startsWith(`${CONTROL_PREFIX}/`)) return route;
    if (route !== undefined) return counted(route, { name, calls, clock });
    const api = mounted.apis.find((candidate) => candidate.matches(path));
    if (api === undefined) return undefined;
    const answer = (request: Incoming) => answerApi(request, { ...parts, api });
    const apiName = `${method} ${api.routeOf(method, path)}`;
    return counted({ bodyLimitBytes: API_LIMIT, answer }, { name: apiName, calls, clock });
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

/** A route whose requests are counted as they come and noted as they end. */
function counted(route: Route, by: { name: string; calls: Calls; clock: Clock }): Route {
  by.calls.count(by.name);
  const note = ({ about }: Incoming, outcome: Call['outcome']) =>
    by.calls.note({ at: by.clock.now(), route: by.name, ...about, outcome });
  return {
    ...route,
    answer: async (request) => {
      try {
        const reply = await route.answer(request);
        note(request, reply.cut === undefined ? reply.status : CUTS[reply.cut]);
        return reply;
      } catch (error) {
        note(request, request.signal.aborted ? 'gone' : 500);
        throw error;
      }
    },
  };
}

const CUTS = { before: 'reset', halfway: 'cut' } as const;
