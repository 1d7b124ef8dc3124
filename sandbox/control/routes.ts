/**
 * The control routes under /_sandbox, by which a test, a script or a person sets the sandbox up and breaks it.
 *
 * JSON in, JSON out, snake_case on the wire. Who may call, and how errors look, is door.ts.
 */
import { z } from 'zod';
import { type Account, type Accounts, isEmail } from '../accounts.ts';
import type { Calls } from '../calls.ts';
import type { Client, Clients } from '../clients.ts';
import type { Clock } from '../clock.ts';
import { type Cell, parseCsv, typeCells } from '../csv.ts';
import { FAULT_CASES, isFaultName } from '../fault-cases.ts';
import type { Fault, Faults } from '../faults.ts';
import type { Grants } from '../grants.ts';
import type { Incoming } from '../http.ts';
import { AUTHORIZATION_PATH, type Authorize } from '../oauth/authorize.ts';
import type { Consent } from '../oauth/consent.ts';
import { fullScope } from '../oauth/scopes.ts';
import type { Tokens } from '../tokens.ts';
import { ControlError, invalid, readBody } from './door.ts';

/** What the control routes act on. */
export interface ControlParts {
  url: string;
  accounts: Accounts;
  clients: Clients;
  grants: Grants;
  tokens: Tokens;
  authorize: Authorize;
  consent: Consent;
  clock: Clock;
  faults: Faults;
  calls: Calls;
  createSpreadsheet: CreateSpreadsheet;
  save: () => Promise<void>;
}

/** Makes a spreadsheet that belongs to an account, filled with rows. */
export type CreateSpreadsheet = (wanted: {
  account: Account;
  title: string;
  sheet: string;
  rows: Cell[][];
}) => Promise<{ spreadsheetId: string }>;

type ControlRoute = (request: Incoming, parts: ControlParts) => Promise<unknown> | unknown;

const TEN_YEARS_S = 10 * 365 * 86_400;
const NAME = z.string().min(1).max(200);
const EMAIL = z.string().refine(isEmail, 'is not an e-mail address');
const CELL = z.union([z.string(), z.number(), z.boolean(), z.null()]);

const ACCOUNT = z.strictObject({ email: EMAIL, name: NAME.optional(), hosted_domain: NAME.optional() });
const SPREADSHEET = z.strictObject({
  account: z.string(),
  title: NAME,
  sheet: NAME.default('Sheet1'),
  csv: z.string().optional(),
  rows: z.array(z.array(CELL)).optional(),
});
const AUTHORIZE = z.strictObject({
  url: z.string(),
  account: z.string(),
  allow: z.array(z.string()).optional(),
  deny: z.boolean().optional(),
});
const REVOKE = z.strictObject({ account: z.string(), project_number: z.string().optional() });
const CLIENT = z.strictObject({
  client_id: z.string().optional(),
  name: NAME.optional(),
  project_number: z
    .string()
    .regex(/^\d{6,20}$/, 'must be digits')
    .optional(),
  redirect_uris: z.array(z.url({ protocol: /^https?$/ })).min(1),
});
const CLOCK = z.strictObject({ advance_s: z.number().positive().max(TEN_YEARS_S) });
const FAULT = z.strictObject({
  case: z.string().refine(isFaultName, {
    error: `is not a known fault; known are ${Object.keys(FAULT_CASES).join(', ')}`,
  }),
  account: z.string().optional(),
  client_id: z.string().optional(),
  times: z.int().positive().max(1_000_000).optional(),
  delay_ms: z.int().positive().max(3_600_000).optional(),
});

/** The control routes by method and path below /_sandbox. */
export const CONTROL_ROUTES: Record<string, ControlRoute> = {
  'GET /accounts': (_request, { accounts }) => ({ accounts: accounts.list().map(accountToWire) }),

  'POST /accounts': async (request, { accounts, save }) => {
    const { email, name, hosted_domain: hostedDomain } = readBody(request, ACCOUNT);
    const account = accounts.add({ email, name, hostedDomain });
    await save();
    return accountToWire(account);
  },

  'POST /spreadsheets': (request, parts) => {
    const { account, title, sheet, csv, rows } = readBody(request, SPREADSHEET);
    const owner = getAccount(account, parts.accounts);
    if ((csv === undefined) === (rows === undefined)) throw invalid('csv', 'give either csv or rows');
    return parts.createSpreadsheet({ account: owner, title, sheet, rows: rows ?? cellsOf(csv!) });
  },

  'POST /authorize': walkConsent,

  'POST /revoke': async (request, { accounts, clients, grants, tokens, save }) => {
    const { account, project_number: number = clients.builtIn().projectNumber } = readBody(request, REVOKE);
    const pair = { projectNumber: number, sub: getAccount(account, accounts).sub };
    tokens.endAll(pair);
    grants.remove(pair);
    await save();
    return {};
  },

  'GET /clients': (_request, { clients }) => ({ clients: clients.list().map(clientToWire) }),

  'POST /clients': async (request, { clients, save }) => {
    const body = readBody(request, CLIENT);
    const known = clients.find(body.client_id ?? '');
    if (body.client_id !== undefined && known === undefined) throw invalid('client_id', 'no such client');
    if (known !== undefined) clients.addRedirectUris(known, body.redirect_uris);
    const client =
      known ??
      clients.add({ redirectUris: body.redirect_uris, projectNumber: body.project_number, name: body.name });
    await save();
    return clientToWire(client);
  },

  'GET /calls': (_request, { calls }) => calls.list(),

  'GET /clock': (_request, { clock }) => clockToWire(clock),

  'POST /clock': (request, { clock }) => {
    clock.advance(readBody(request, CLOCK).advance_s);
    return clockToWire(clock);
  },

  'GET /faults': (_request, { faults, accounts }) => ({
    faults: faults.list().map((fault) => faultToWire(fault, accounts)),
    cases: Object.fromEntries(Object.entries(FAULT_CASES).map(([name, { text }]) => [name, text])),
  }),

  'POST /faults': (request, { faults, accounts, clients }) => {
    const body = readBody(request, FAULT);
    const sub = body.account === undefined ? undefined : getAccount(body.account, accounts).sub;
    if (body.client_id !== undefined && clients.find(body.client_id) === undefined) {
      throw invalid('client_id', 'no such client');
    }
    const { case: name, client_id: clientId, times, delay_ms: delayMs } = body;
    return faultToWire(faults.add({ name, sub, clientId, times, delayMs }), accounts);
  },

  'DELETE /faults': (request, { faults, accounts }) => {
    const name = request.query.get('case') ?? undefined;
    if (name !== undefined && !isFaultName(name)) throw invalid('case', 'is not a known fault');
    const account = request.query.get('account');
    const sub = account === null ? undefined : getAccount(account, accounts).sub;
    return { cleared: faults.clear({ name, sub }) };
  },
};

async function walkConsent(request: Incoming, parts: ControlParts): Promise<{ redirect: string }> {
  const body = readBody(request, AUTHORIZE);
  const account = getAccount(body.account, parts.accounts);
  const url = URL.canParse(body.url) ? new URL(body.url) : undefined;
  if (url === undefined || url.pathname !== AUTHORIZATION_PATH) {
    throw invalid('url', `must be an address of ${parts.url}${AUTHORIZATION_PATH}`);
  }
  const judgement = parts.authorize.judge(url.searchParams, account);
  if (!judgement.ok) {
    const { status, code, message } = judgement.error;
    throw new ControlError(400, code, `url: the sandbox would show its error page ${status}: ${message}`);
  }
  const asked = judgement.request;
  const ticked = body.allow?.map(fullScope) ?? asked.scopes;
  const foreign = ticked.find((scope) => !asked.scopes.includes(scope));
  if (foreign !== undefined) throw invalid('allow', `${foreign} is not asked for`);
  const redirect =
    body.deny === true ? parts.consent.deny(asked) : parts.consent.allow(asked, { account, ticked });
  await parts.save();
  return { redirect };
}

function getAccount(emailOrSub: string, accounts: Accounts): Account {
  const account = accounts.find(emailOrSub);
  if (account === undefined)
    throw invalid('account', `there is no account ${emailOrSub}; POST /_sandbox/accounts adds one`);
  return account;
}

function cellsOf(csv: string): Cell[][] {
  try {
    return typeCells(parseCsv(csv));
  } catch (error) {
    if (error instanceof SyntaxError) throw invalid('csv', error.message);
    throw error;
  }
}

function accountToWire({ email, name, sub, hostedDomain }: Account) {
  return { email, name, sub, ...(hostedDomain === undefined ? {} : { hosted_domain: hostedDomain }) };
}

function clientToWire(client: Client) {
  const { clientId, clientSecret, projectNumber, redirectUris } = client;
  return {
    client_id: clientId,
    client_secret: clientSecret,
    project_number: projectNumber,
    redirect_uris: redirectUris,
  };
}

function clockToWire(clock: Clock) {
  return { now: new Date(clock.now()).toISOString(), offset_s: clock.offsetSeconds() };
}

function faultToWire(fault: Fault, accounts: Accounts) {
  return {
    id: fault.id,
    case: fault.name,
    account: fault.sub === undefined ? null : (accounts.find(fault.sub)?.email ?? fault.sub),
    client_id: fault.clientId ?? null,
    times_left: fault.timesLeft ?? null,
    delay_ms: fault.delayMs,
    struck: fault.struck,
  };
}
