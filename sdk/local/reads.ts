/** What a run reads from outside: answers of providers, and what the service knows of its connection. */
import { METHODS } from 'node:http';
import type { Json } from './outcome.ts';

export type CallName = 'proxy' | 'uncontrolledFetch';

/** Of `proxy` or `uncontrolledFetch`, as the harness asks. */
export type OutgoingCall = {
  name: CallName;
  args: {
    method: string;
    /** Of `proxy`. */
    endpoint?: string;
    /** Without the question mark. */
    query?: string;
    /** Of `uncontrolledFetch`. */
    url?: string;
    headers?: Record<string, string>;
    retries?: number;
    retryOn?: number[];
    baseUrlOverride?: string;
    decompress?: boolean;
  };
  body: Buffer | undefined;
};

export type CallAnswer = {
  value: { status: number; statusText: string; headers: Record<string, string>; url?: string };
  body: Buffer;
};

export const factNames = [
  'getConnection',
  'getIntegration',
  'getToken',
  'getEnvironmentVariables',
  'getWebhookURL',
] as const;
export type FactName = (typeof factNames)[number];

export type Reads = {
  /** Throws where there is no answer of the one that was called. Left off where the signal aborts. */
  call(call: OutgoingCall, signal?: AbortSignal): Promise<CallAnswer>;
  fact(name: FactName): Promise<Json>;
};

/**
 * Whether the call is safe (RFC 9110 §9.2.1): its method is safe, and it has nothing that could make a server treat it as
 * another method, such as `X-HTTP-Method-Override`. A call that only resembles an override is not a read either.
 */
export function isRead({ args }: OutgoingCall): boolean {
  const { method, endpoint = '', url = '', query = '', headers = {} } = args;
  if (!['GET', 'HEAD', 'OPTIONS'].includes(method.toUpperCase())) return false;
  if (Object.keys(headers).some((name) => overridingHeader.test(plain(name)))) return false;
  const asked = [endpoint, url].map((address) => address.split('?').slice(1).join('&'));
  return ![...asked, query].some((text) =>
    [...new URLSearchParams(text)].some(([name, value]) => isOverride(name, value)),
  );
}

const overridingHeader = /method|override|(original|rewrite)ur[il]$/;

/** `payment_method=card` is a filter, `_method=DELETE` and `method=DELETE` are not. */
function isOverride(name: string, value: string): boolean {
  const read = plain(name);
  if (/^[_$]/.test(name) && /method|headers/.test(read)) return true;
  if (/^x|override|httpheaders/.test(read) && /method|ur[il]$|httpheaders/.test(read)) return true;
  return /(method|verb)$/.test(read) && METHODS.includes(value.trim().toUpperCase());
}

function plain(name: string): string {
  return name.toLowerCase().replace(/[^a-z0-9]/g, '');
}

/** As people write it: method, path and query. */
export function titleOf({ args }: OutgoingCall): string {
  const { method, endpoint, url, query } = args;
  const at = url ?? `${/^https?:/.test(endpoint ?? '') ? '' : '/'}${(endpoint ?? '').replace(/^\/+/, '')}`;
  return `${method} ${at}${query ? `${at.includes('?') ? '&' : '?'}${query}` : ''}`;
}
