/** Calls to a provider that open and stop push channels. Does not own: their effects (`watches.ts`, `channel-ends.ts`). */
import type { Credentials } from '../../auth-modes/modes.ts';
import { placeCredentials } from '../../auth-modes/place.ts';
import type { CredentialSource } from '../../connections/refresh/credentials.ts';
import { type LiveConnection, templateValues } from '../../connections/store/reader.ts';
import { AppError } from '../../errors.ts';
import type { Fetch } from '../../outbound/outbound.ts';
import { readBody } from '../../outbound/read-body.ts';
import type { ChannelRules } from '../../providers/definition.ts';
import type { WatchFault } from './channel-store.ts';

export type ProviderCall = {
  connection: LiveConnection;
  credentials: Credentials;
  rules: ChannelRules;
  fetch: Fetch;
  signal: AbortSignal;
};

export type Opened =
  | { ok: true; resourceId: string; expiresAt: Date }
  /** `isRefused`: the provider has no such channel. `isLasting`: a soon repetition is useless. */
  | { ok: false; fault: WatchFault; isRefused: boolean; isLasting: boolean; isTokenRefused: boolean };

const requestMs = 15_000;
const maxBytes = 64 * 1024;

/** Calls the provider, and once more with renewed credentials if it refuses the token. Each call has its own time limit. */
export async function callWithRenewal<T>(
  source: Pick<CredentialSource, 'renewed'>,
  to: ProviderCall,
  by: { call: (to: ProviderCall) => Promise<T>; isTokenRefused: (outcome: T) => boolean },
): Promise<T> {
  const limited = () => AbortSignal.any([to.signal, AbortSignal.timeout(requestMs)]);
  const outcome = await by.call({ ...to, signal: limited() });
  if (!by.isTokenRefused(outcome)) return outcome;
  const credentials = await source.renewed(to.connection, to.credentials);
  return credentials === undefined ? outcome : by.call({ ...to, credentials, signal: limited() });
}

/** Requests a channel. An empty `target` is the whole account. Throws TemplateError, and AppError for a forbidden address. */
export async function openChannel(
  to: ProviderCall,
  {
    now,
    ...channel
  }: { id: string; token: string; target: string; address: string; expiresAt: Date; now: Date },
): Promise<Opened> {
  const { rules } = to;
  const { target } = channel;
  let path = rules.target.path.replace('{target}', () => encodeURIComponent(target));
  if (target === '') {
    const { account } = rules;
    if (account === undefined) throw new Error('The provider watches no whole account.');
    const page = await call(to, { method: 'GET', path: account.page.path });
    if (!page.ok) return page;
    path = account.path.replace('{page}', () =>
      encodeURIComponent(String(page.json[account.page.field] ?? '')),
    );
  }
  const { id, token, address, expiresAt } = channel;
  const body = { id, type: 'web_hook', address, token, expiration: expiresAt.getTime() };
  const answer = await call(to, { method: 'POST', path, body });
  if (!answer.ok) return answer;
  const { resourceId, expiration } = answer.json;
  const endsAt = new Date(Number(expiration));
  const isClear = typeof resourceId === 'string' && resourceId !== '' && endsAt > now;
  if (!isClear) return unknown('The provider answered without saying what it watches, and until when.');
  // A longer lifetime than requested is not relied on.
  return { ok: true, resourceId, expiresAt: endsAt < expiresAt ? endsAt : expiresAt };
}

/** `over`: the channel was stopped, or the provider has none of this ID. */
export type StopOutcome = 'over' | 'token_refused' | 'refused' | 'unanswered';

export async function stopChannel(
  to: ProviderCall,
  channel: { id: string; resourceId: string },
): Promise<StopOutcome> {
  const answer = await call(to, { method: 'POST', path: to.rules.stop.path, body: channel });
  if (answer.ok || answer.status === 404) return 'over';
  if (answer.isTokenRefused) return 'token_refused';
  return answer.isRefused ? 'refused' : 'unanswered';
}

type CallFault = Opened & { ok: false } & { status: number | undefined };
type Called = { ok: true; json: Record<string, unknown> } | CallFault;

async function call(
  { connection, credentials, rules, fetch, signal }: ProviderCall,
  { method, path, body }: { method: string; path: string; body?: object },
): Promise<Called> {
  const placed = placeCredentials({
    ...{ definition: connection.integration.provider, credentials },
    values: templateValues(connection),
  });
  let status: number;
  let text: string;
  try {
    const answer = await fetch(rules.base_url + path, {
      method,
      headers: {
        ...placed.headers,
        accept: 'application/json',
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
      redirect: 'manual',
      signal,
    });
    status = answer.status;
    // Longer responses are cut, so they are not valid JSON.
    text = (await readBody(answer.body, maxBytes)).bytes.toString('utf8');
  } catch (error) {
    for (let cause = error; cause instanceof Error; cause = cause.cause)
      if (cause instanceof AppError) throw cause;
    return unknown('The provider did not answer.');
  }
  const json = objectIn(text);
  if (status >= 200 && status < 300) return { ok: true, json };
  if (status < 400 || status >= 500) return unknown(`The provider answered with status ${status}.`, status);
  const reason = reasonIn(json);
  return {
    ok: false,
    fault: {
      code: 'channel_refused',
      message: `The provider refused the channel: status ${status}${reason === undefined ? '' : `, ${reason}`}.`,
    },
    ...{ isRefused: true, isLasting: reason !== undefined && rules.lasting.includes(reason), status },
    isTokenRefused: status === 401 && (reason === undefined || !rules.lasting.includes(reason)),
  };
}

function unknown(message: string, status?: number): CallFault {
  return {
    ...{ ok: false, fault: { code: 'channel_unanswered', message }, status },
    ...{ isRefused: false, isLasting: false, isTokenRefused: false },
  };
}

function objectIn(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** Google's `error.errors[0].reason`. Texts of the provider are not passed on. */
function reasonIn({ error }: Record<string, unknown>): string | undefined {
  const [first] = (error as { errors?: { reason?: unknown }[] } | undefined)?.errors ?? [];
  const reason = first?.reason;
  return typeof reason === 'string' && /^[A-Za-z.]{1,60}$/.test(reason) ? reason : undefined;
}
