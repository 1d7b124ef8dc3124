/** Control routes about accounts: who exists, what they consent to, and what befalls them. */
import { z } from 'zod';
import type { Account } from '../accounts.ts';
import type { Incoming } from '../http.ts';
import { AUTHORIZATION_PATH } from '../oauth/authorize.ts';
import { fullScope } from '../oauth/scopes.ts';
import type { Delivery } from '../security-events.ts';
import { diesAt } from '../tokens.ts';
import { ControlError, invalid, readBody } from './answer.ts';
import { deliveryToWire } from './event-routes.ts';
import {
  ADDED_LIMIT,
  type ControlParts,
  type ControlRoute,
  EMAIL,
  getAccount,
  getProject,
  NAME,
  TEN_YEARS_S,
  timeToWire,
} from './parts.ts';

const ACCOUNT = z.strictObject({
  email: EMAIL,
  name: NAME.optional(),
  hosted_domain: NAME.optional(),
  standing: z.enum(['active', 'restricted', 'admin_policy', 'disabled']).optional(),
  session_s: z.int().positive().max(TEN_YEARS_S).nullable().optional(),
});
const AUTHORIZE = z.strictObject({
  url: z.string(),
  account: z.string(),
  allow: z.array(z.string()).optional(),
  deny: z.boolean().optional(),
  for_s: z.int().positive().max(TEN_YEARS_S).optional(),
});
const REVOKE = z.strictObject({ account: z.string(), project_number: z.string().optional() });
const PASSWORD = z.strictObject({ account: z.string() });

export const ACCOUNT_ROUTES: Record<string, ControlRoute> = {
  'GET /accounts': (_request, { accounts }) => ({ accounts: accounts.list().map(accountToWire) }),

  'POST /accounts': async (request, { accounts, acts, save }) => {
    const body = readBody(request, ACCOUNT);
    if (accounts.find(body.email) === undefined && accounts.list().length >= ADDED_LIMIT) {
      throw new ControlError(400, 'limit_reached', `email: there are ${ADDED_LIMIT} accounts already`);
    }
    const { email, name, hosted_domain: hostedDomain, standing, session_s: sessionSeconds } = body;
    const account = accounts.add({ email, name, hostedDomain });
    if (sessionSeconds === null) delete account.sessionSeconds;
    else if (sessionSeconds !== undefined) account.sessionSeconds = sessionSeconds;
    const deliveries = standing === undefined ? [] : await acts.setStanding(account, standing);
    await save();
    return { ...accountToWire(account), ...toldToWire(deliveries) };
  },

  'DELETE /accounts': async (request, { accounts, acts }) => {
    const account = getAccount(request.query.get('account') ?? '', accounts);
    return toldToWire(await acts.purge(account));
  },

  'POST /password': async (request, { accounts, acts }) => {
    const account = getAccount(readBody(request, PASSWORD).account, accounts);
    const { ended, deliveries } = await acts.changePassword(account);
    return { ended, ...toldToWire(deliveries) };
  },

  'POST /revoke': async (request, { accounts, acts, clients }) => {
    const { account, project_number: number = clients.builtIn().projectNumber } = readBody(request, REVOKE);
    getProject(number, clients);
    return toldToWire(await acts.revoke(getAccount(account, accounts), number));
  },

  'GET /grants': (_request, parts) => ({ grants: grantsToWire(parts) }),

  'POST /authorize': walkConsent,
};

async function walkConsent(request: Incoming, parts: ControlParts): Promise<{ redirect: string }> {
  const body = readBody(request, AUTHORIZE);
  const account = getAccount(body.account, parts.accounts);
  const url = URL.canParse(body.url) ? new URL(body.url) : undefined;
  if (url === undefined || url.pathname !== AUTHORIZATION_PATH) {
    throw invalid('url', `must be an address of ${parts.url}${AUTHORIZATION_PATH}`);
  }
  const { about } = request;
  const judgement = parts.authorize.judgeFor(account, { query: url.searchParams, about });
  if (!judgement.ok) {
    const { status, code, message } = judgement.error;
    throw new ControlError(400, code, `url: the sandbox would show its error page ${status}: ${message}`);
  }
  const asked = judgement.request;
  const ticked = body.allow?.map(fullScope) ?? asked.scopes;
  const foreign = ticked.find((scope) => !asked.scopes.includes(scope));
  if (foreign !== undefined) throw invalid('allow', `${foreign} is not asked for`);
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

// Absent where nobody was to be told, so that an answer shows at a glance whether receivers heard of it.
function toldToWire(deliveries: Delivery[]) {
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
