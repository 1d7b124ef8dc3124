/**
 * The control routes under /_sandbox, by which tests, scripts and the page configure the sandbox and inject faults.
 *
 * JSON in, JSON out, snake_case on the wire. Authentication and errors are in answer.ts.
 */

import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { Account, Accounts } from '../accounts.ts';
import type { Client, Project } from '../clients.ts';
import type { Clock } from '../clock.ts';
import { type Cell, parseCsv, typeCells } from '../csv.ts';
import { faultCases, isFaultName } from '../faults/cases.ts';
import { type Fault, faultLimit } from '../faults/faults.ts';
import type { Incoming } from '../http.ts';
import { authorizationPath } from '../oauth/authorize.ts';
import { fullScope } from '../oauth/scopes.ts';
import { googleLimits, type Quota } from '../quota.ts';
import { type Delivery, type EventType, eventTypes, isLoopback, receiverLimit } from '../security-events.ts';
import { damageKinds } from '../sheets/damage.ts';
import { diesAt } from '../tokens.ts';
import { ControlError, invalid, readBody } from './answer.ts';
import {
  addedLimit,
  type ControlParts,
  type ControlRoute,
  emailText,
  getAccount,
  getClient,
  getProject,
  nameText,
  projectNumberText,
  tenYearsS,
  timeToWire,
} from './parts.ts';

// Accounts, their consents, and their changes at the provider.

const accountBody = z.strictObject({
  email: emailText,
  name: nameText.optional(),
  hosted_domain: nameText.optional(),
  standing: z.enum(['active', 'restricted', 'admin_policy', 'disabled']).optional(),
  session_s: z.int().positive().max(tenYearsS).nullable().optional(),
});
const authorizeBody = z.strictObject({
  url: z.string(),
  account: z.string(),
  allow: z.array(z.string()).optional(),
  deny: z.boolean().optional(),
  for_s: z.int().positive().max(tenYearsS).optional(),
});
const revokeBody = z.strictObject({ account: z.string(), project_number: z.string().optional() });
const passwordBody = z.strictObject({ account: z.string() });

const accountRoutes: Record<string, ControlRoute> = {
  'GET /accounts': (_request, { accounts }) => ({ accounts: accounts.list().map(accountToWire) }),

  'POST /accounts': async (request, { accounts, accountChanges, save }) => {
    const body = readBody(request, accountBody);
    if (accounts.find(body.email) === undefined && accounts.list().length >= addedLimit) {
      throw new ControlError(
        400,
        'limit_reached',
        `email: the sandbox has ${addedLimit} accounts, which is the limit`,
      );
    }
    const { email, name, hosted_domain: hostedDomain, standing, session_s: sessionSeconds } = body;
    const account = accounts.add({ email, name, hostedDomain });
    if (sessionSeconds === null) delete account.sessionSeconds;
    else if (sessionSeconds !== undefined) account.sessionSeconds = sessionSeconds;
    const deliveries = standing === undefined ? [] : await accountChanges.setStanding(account, standing);
    await save();
    return { ...accountToWire(account), ...eventsToWire(deliveries) };
  },

  'DELETE /accounts': async (request, { accounts, accountChanges }) => {
    const account = getAccount(request.query.get('account') ?? '', accounts);
    return eventsToWire(await accountChanges.purge(account));
  },

  'POST /password': async (request, { accounts, accountChanges }) => {
    const account = getAccount(readBody(request, passwordBody).account, accounts);
    const { ended, deliveries } = await accountChanges.changePassword(account);
    return { ended, ...eventsToWire(deliveries) };
  },

  'POST /revoke': async (request, { accounts, accountChanges, clients }) => {
    const { account, project_number: number = clients.builtIn().projectNumber } = readBody(
      request,
      revokeBody,
    );
    getProject(number, clients);
    return eventsToWire(await accountChanges.revoke(getAccount(account, accounts), number));
  },

  'GET /grants': (_request, parts) => ({ grants: grantsToWire(parts) }),

  'POST /authorize': authorizeByRoute,
};

async function authorizeByRoute(request: Incoming, parts: ControlParts): Promise<{ redirect: string }> {
  const body = readBody(request, authorizeBody);
  const account = getAccount(body.account, parts.accounts);
  const url = URL.canParse(body.url) ? new URL(body.url) : undefined;
  if (url === undefined || url.pathname !== authorizationPath) {
    throw invalid('url', `must be an address of ${parts.url}${authorizationPath}`);
  }
  const { about } = request;
  const result = parts.authorize.validateFor(account, { query: url.searchParams, about });
  if (!result.ok) {
    const { status, code, message } = result.error;
    throw new ControlError(400, code, `url: the sandbox would show error page ${status}: ${message}`);
  }
  const asked = result.request;
  const ticked = body.allow?.map(fullScope) ?? asked.scopes;
  const foreign = ticked.find((scope) => !asked.scopes.includes(scope));
  if (foreign !== undefined) throw invalid('allow', `${foreign} is not among the requested scopes`);
  const redirect =
    body.deny === true
      ? parts.consent.deny(asked)
      : parts.consent.allow(asked, { account, about, ticked, forSeconds: body.for_s });
  await parts.save();
  return { redirect };
}

function accountToWire({ email, name, sub, hostedDomain, standing, sessionSeconds }: Account) {
  return {
    email,
    name,
    sub,
    ...(hostedDomain === undefined ? {} : { hosted_domain: hostedDomain }),
    standing,
    ...(sessionSeconds === undefined ? {} : { session_s: sessionSeconds }),
  };
}

// The field is absent if no receiver had to be notified.
function eventsToWire(deliveries: Delivery[]) {
  return deliveries.length === 0 ? {} : { security_events: deliveries.map(deliveryToWire) };
}

function grantsToWire({ accounts, grants, tokens }: ControlParts) {
  const key = (pair: { projectNumber: string; sub: string }) => `${pair.projectNumber} ${pair.sub}`;
  const live = Map.groupBy(tokens.listLiveRefresh(), key);
  return grants.list().map(({ projectNumber, sub, scopes, grantedAt }) => ({
    account: accounts.find(sub)?.email ?? sub,
    project_number: projectNumber,
    scopes,
    granted_at: timeToWire(grantedAt),
    refresh_tokens: (live.get(key({ projectNumber, sub })) ?? []).map((token) => ({
      client_id: token.clientId,
      scopes: token.scopes,
      issued_at: timeToWire(token.issuedAt),
      used_at: timeToWire(token.usedAt),
      dies_at: timeToWire(diesAt(token)),
    })),
  }));
}

// Projects and their clients.

const clientBody = z.strictObject({
  client_id: z.string().optional(),
  name: nameText.optional(),
  project_number: projectNumberText.optional(),
  redirect_uris: z
    .array(z.url({ protocol: /^https?$/ }))
    .min(1)
    .max(100),
});
const projectBody = z.strictObject({
  project_number: projectNumberText,
  name: nameText.optional(),
  audience: z.enum(['external', 'internal']).optional(),
  // Null removes the domain.
  domain: nameText.nullable().optional(),
  publishing: z.enum(['testing', 'production']).optional(),
  // Google allows a hundred test users.
  test_users: z.array(emailText).max(100).optional(),
});

const clientRoutes: Record<string, ControlRoute> = {
  'GET /clients': (_request, { clients }) => ({ clients: clients.list().map(clientToWire) }),

  'POST /clients': async (request, { clients, save }) => {
    const body = readBody(request, clientBody);
    const known = body.client_id === undefined ? undefined : getClient(body.client_id, clients);
    if (known === undefined && clients.list().length >= addedLimit) {
      throw new ControlError(
        400,
        'limit_reached',
        `body: the sandbox has ${addedLimit} clients, which is the limit`,
      );
    }
    if (known !== undefined) clients.addRedirectUris(known, body.redirect_uris);
    const client =
      known ??
      clients.add({ redirectUris: body.redirect_uris, projectNumber: body.project_number, name: body.name });
    await save();
    return clientToWire(client);
  },

  'GET /projects': (_request, { clients }) => ({ projects: clients.listProjects().map(projectToWire) }),

  'POST /projects': async (request, { clients, save }) => {
    const {
      project_number: number,
      test_users: testUsers,
      domain,
      ...settings
    } = readBody(request, projectBody);
    const project = getProject(number, clients);
    const audience = settings.audience ?? project.audience;
    if (audience === 'internal' && (domain === undefined ? project.domain : domain) == null) {
      throw invalid('domain', 'is required for an internal project');
    }
    const lowered = testUsers?.map((email) => email.toLowerCase());
    if (domain === null) delete project.domain;
    else if (domain !== undefined) project.domain = domain;
    Object.assign(project, settings, lowered === undefined ? {} : { testUsers: lowered });
    await save();
    return projectToWire(project);
  },
};

function clientToWire(client: Client) {
  const { clientId, clientSecret, projectNumber, redirectUris } = client;
  return {
    client_id: clientId,
    client_secret: clientSecret,
    project_number: projectNumber,
    redirect_uris: redirectUris,
  };
}

function projectToWire({ number, name, audience, domain, publishing, testUsers }: Project) {
  return {
    project_number: number,
    name,
    audience,
    ...(domain === undefined ? {} : { domain }),
    publishing,
    test_users: testUsers,
  };
}

// Security events: sending one, and the receivers that get them automatically.

const receiverAddress = z.string().max(2000).refine(isLoopback, 'must be an address of this machine');
const eventBody = z.strictObject({
  account: z.string(),
  client_id: z.string().optional(),
  type: z.enum(Object.keys(eventTypes) as [EventType, ...EventType[]]),
  receiver: receiverAddress,
  fake_signature: z.boolean().optional(),
  audience: z.string().min(1).max(200).optional(),
  jti: z.string().min(1).max(200).optional(),
  reason: z.string().min(1).max(200).optional(),
  state: z.string().min(1).max(200).optional(),
  refresh_token: z.string().min(1).max(512).optional(),
});
const registrationBody = z.strictObject({ client_id: z.string().optional(), url: receiverAddress });

const eventRoutes: Record<string, ControlRoute> = {
  'POST /security-events': async (request, { accounts, clients, securityEvents }) => {
    const body = readBody(request, eventBody);
    const clientId = getClient(body.client_id ?? clients.builtIn().clientId, clients).clientId;
    const { type, audience, jti, receiver } = body;
    const event = {
      type,
      clientId,
      sub: getAccount(body.account, accounts).sub,
      audience,
      jti,
      fields: fieldsOf(body),
    };
    const delivery =
      body.fake_signature === true
        ? await securityEvents.sendForged(event, receiver)
        : await securityEvents.send(event, receiver);
    return deliveryToWire(delivery);
  },

  'GET /receivers': (_request, { receivers, securityEvents }) => ({
    receivers: receivers.list().map(({ clientId, url }) => ({ client_id: clientId, url })),
    deliveries: securityEvents.listDeliveries().map(deliveryToWire),
  }),

  'POST /receivers': async (request, { clients, receivers, save }) => {
    const { url, client_id: clientId = clients.builtIn().clientId } = readBody(request, registrationBody);
    getClient(clientId, clients);
    if (receivers.list().length >= receiverLimit) {
      throw new ControlError(
        400,
        'limit_reached',
        `url: the sandbox has ${receiverLimit} receivers, which is the limit`,
      );
    }
    receivers.add({ clientId, url });
    await save();
    return { client_id: clientId, url };
  },

  'DELETE /receivers': async (request, { clients, receivers, save }) => {
    const clientId = request.query.get('client_id') ?? clients.builtIn().clientId;
    const isRemoved = receivers.remove({ clientId, url: request.query.get('url') ?? '' });
    await save();
    return { removed: isRemoved ? 1 : 0 };
  },
};

function deliveryToWire({ receiver, type, jti, status, at }: Delivery) {
  return { receiver, type, jti, status, at: timeToWire(at) };
}

// The event names a single token by its hash:
// https://developers.google.com/identity/protocols/risc, "token-revoked".
function fieldsOf(body: z.infer<typeof eventBody>): Record<string, unknown> {
  const sha512 = (text: string | Buffer) => createHash('sha512').update(text).digest();
  const { reason, state, refresh_token: token } = body;
  return {
    ...(reason === undefined ? {} : { reason }),
    ...(state === undefined ? {} : { state }),
    ...(token === undefined
      ? {}
      : {
          subject: {
            subject_type: 'oauth_token',
            token_type: 'refresh_token',
            token_identifier_alg: 'hash_base64_sha512_sha512',
            token: sha512(sha512(token)).toString('base64'),
          },
        }),
  };
}

// Faults, the clock, and the requests to the sandbox.

const clockBody = z.strictObject({ advance_s: z.number().positive().max(tenYearsS) });
const faultBody = z.strictObject({
  case: z.string().refine(isFaultName, {
    error: `is not a known fault; known are ${Object.keys(faultCases).join(', ')}`,
  }),
  account: z.string().optional(),
  client_id: z.string().optional(),
  times: z.int().positive().max(1_000_000).optional(),
  every: z.int().min(2).max(1_000_000).optional(),
  for_s: z.number().positive().max(tenYearsS).optional(),
  delay_ms: z.int().positive().max(3_600_000).optional(),
});

const faultRoutes: Record<string, ControlRoute> = {
  'GET /calls': (_request, { calls }) => calls.list(),

  'GET /calls/last': (_request, { calls, accounts }) => ({
    calls: calls.last().map(({ at, route, sub, clientId, outcome, faults }) => ({
      at: timeToWire(at),
      route,
      account: emailOf(sub, accounts),
      client_id: clientId ?? null,
      outcome,
      faults,
    })),
  }),

  'GET /refreshes': (_request, { refreshes, accounts }) => ({
    refreshes: refreshes.list().map(({ sub, clientId, asked, accepted, underWay, maxAtOnce }) => ({
      account: emailOf(sub, accounts),
      client_id: clientId,
      asked,
      accepted,
      under_way: underWay,
      most_at_once: maxAtOnce,
    })),
  }),

  'GET /clock': (_request, { clock }) => clockToWire(clock),

  'POST /clock': (request, { clock }) => {
    clock.advance(readBody(request, clockBody).advance_s);
    return clockToWire(clock);
  },

  'GET /faults': (_request, { faults, accounts }) => ({
    faults: faults.list().map((fault) => faultToWire(fault, accounts)),
    cases: Object.fromEntries(Object.entries(faultCases).map(([name, { text }]) => [name, text])),
  }),

  'POST /faults': (request, { faults, accounts, clients }) => {
    const body = readBody(request, faultBody);
    const sub = body.account === undefined ? undefined : getAccount(body.account, accounts).sub;
    if (body.client_id !== undefined) getClient(body.client_id, clients);
    if (faults.list().length >= faultLimit) {
      throw new ControlError(
        400,
        'limit_reached',
        `case: ${faultLimit} faults are active, which is the limit`,
      );
    }
    const { case: name, client_id: clientId, times, every, for_s: forSeconds, delay_ms: delayMs } = body;
    return faultToWire(faults.add({ name, sub, clientId, times, every, forSeconds, delayMs }), accounts);
  },

  'DELETE /faults': (request, { faults, accounts }) => {
    const { query } = request;
    const name = query.get('case') ?? undefined;
    if (name !== undefined && !isFaultName(name)) throw invalid('case', 'is not a known fault');
    const account = query.get('account');
    const sub = account === null ? undefined : getAccount(account, accounts).sub;
    return { cleared: faults.clear({ id: query.get('id') ?? undefined, name, sub }) };
  },
};

function clockToWire(clock: Clock) {
  return { now: timeToWire(clock.now()), offset_s: clock.offsetSeconds() };
}

function faultToWire(fault: Fault, accounts: Accounts) {
  return {
    id: fault.id,
    case: fault.name,
    account: emailOf(fault.sub, accounts),
    client_id: fault.clientId ?? null,
    times_left: fault.timesLeft ?? null,
    every: fault.every ?? null,
    until: fault.until === undefined ? null : timeToWire(fault.until),
    delay_ms: fault.delayMs,
    times_applied: fault.timesApplied,
  };
}

function emailOf(sub: string | undefined, accounts: Accounts): string | null {
  return sub === undefined ? null : (accounts.find(sub)?.email ?? sub);
}

// The quota of the Sheets API.

const limitCount = z.int().positive().max(1_000_000).optional();
const limitsBody = z.strictObject({
  reads_per_project: limitCount,
  reads_per_account: limitCount,
  writes_per_project: limitCount,
  writes_per_account: limitCount,
  window_s: z.number().positive().max(86_400).optional(),
});

const quotaRoutes: Record<string, ControlRoute> = {
  'GET /quota': (_request, { quota }) => quotaToWire(quota),

  // The default of each limit is Google's.
  'POST /quota': (request, { quota }) => {
    const body = readBody(request, limitsBody);
    quota.set({
      readsPerProject: body.reads_per_project ?? googleLimits.readsPerProject,
      readsPerAccount: body.reads_per_account ?? googleLimits.readsPerAccount,
      writesPerProject: body.writes_per_project ?? googleLimits.writesPerProject,
      writesPerAccount: body.writes_per_account ?? googleLimits.writesPerAccount,
      windowS: body.window_s ?? googleLimits.windowS,
    });
    return quotaToWire(quota);
  },

  'DELETE /quota': (_request, { quota }) => {
    quota.set(undefined);
    return quotaToWire(quota);
  },
};

function quotaToWire({ limits, refused }: Quota) {
  return {
    limits:
      limits === undefined
        ? null
        : {
            reads_per_project: limits.readsPerProject,
            reads_per_account: limits.readsPerAccount,
            writes_per_project: limits.writesPerProject,
            writes_per_account: limits.writesPerAccount,
            window_s: limits.windowS,
          },
    refused,
  };
}

// Spreadsheets and push channels.

const cellValue = z.union([z.string(), z.number(), z.boolean(), z.null()]);
const spreadsheetBody = z.strictObject({
  account: z.string(),
  title: nameText,
  sheet: nameText.default('Sheet1'),
  csv: z.string().optional(),
  rows: z.array(z.array(cellValue)).optional(),
});
const damageBody = z.strictObject({ spreadsheet_id: z.string(), damage: z.enum(damageKinds) });

const sheetRoutes: Record<string, ControlRoute> = {
  'POST /spreadsheets': (request, parts) => {
    const { account, title, sheet, csv, rows } = readBody(request, spreadsheetBody);
    const owner = getAccount(account, parts.accounts);
    if ((csv === undefined) === (rows === undefined)) throw invalid('csv', 'send either csv or rows');
    return parts.spreadsheets.create({ account: owner, title, sheet, rows: rows ?? cellsOf(csv!) });
  },

  'GET /channels': (_request, { channels }) => ({
    channels: channels.list().map(({ id, address, fileId = null, expiresAt, messages }) => ({
      id,
      address,
      file_id: fileId,
      expires_at: timeToWire(expiresAt),
      messages,
    })),
  }),

  'POST /spreadsheets/damage': async (request, { spreadsheets }) => {
    const { spreadsheet_id: id, damage } = readBody(request, damageBody);
    if (await spreadsheets.damage(id, damage)) return {};
    throw new ControlError(400, 'invalid_body', 'spreadsheet_id: is not a known spreadsheet');
  },
};

function cellsOf(csv: string): Cell[][] {
  try {
    return typeCells(parseCsv(csv));
  } catch (error) {
    if (error instanceof SyntaxError) throw invalid('csv', error.message);
    throw error;
  }
}

/** All control routes by method and path below /_sandbox. */
export const controlRoutes: Record<string, ControlRoute> = {
  ...accountRoutes,
  ...clientRoutes,
  ...eventRoutes,
  ...faultRoutes,
  ...quotaRoutes,
  ...sheetRoutes,
};
