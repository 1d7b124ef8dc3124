/** Control routes about faults, the clock, and what was asked of the sandbox. */
import { z } from 'zod';
import type { Accounts } from '../accounts.ts';
import type { Clock } from '../clock.ts';
import { FAULT_CASES, isFaultName } from '../faults/cases.ts';
import { FAULT_LIMIT, type Fault } from '../faults/faults.ts';
import { ControlError, invalid, readBody } from './answer.ts';
import { type ControlRoute, getAccount, getClient, TEN_YEARS_S, timeToWire } from './parts.ts';

const CLOCK = z.strictObject({ advance_s: z.number().positive().max(TEN_YEARS_S) });
const FAULT = z.strictObject({
  case: z.string().refine(isFaultName, {
    error: `is not a known fault; known are ${Object.keys(FAULT_CASES).join(', ')}`,
  }),
  account: z.string().optional(),
  client_id: z.string().optional(),
  times: z.int().positive().max(1_000_000).optional(),
  every: z.int().min(2).max(1_000_000).optional(),
  for_s: z.number().positive().max(TEN_YEARS_S).optional(),
  delay_ms: z.int().positive().max(3_600_000).optional(),
});

export const FAULT_ROUTES: Record<string, ControlRoute> = {
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
    if (body.client_id !== undefined) getClient(body.client_id, clients);
    if (faults.list().length >= FAULT_LIMIT) {
      throw new ControlError(400, 'limit_reached', `case: ${FAULT_LIMIT} faults are in force already`);
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
    struck: fault.struck,
  };
}

function emailOf(sub: string | undefined, accounts: Accounts): string | null {
  return sub === undefined ? null : (accounts.find(sub)?.email ?? sub);
}
