/** The external reads of a run: responses from providers, and data of the service about the connection. */
import { METHODS } from 'node:http';
import type { Json } from './outcome.ts';

export type CallName = 'proxy' | 'uncontrolledFetch';

/** A call of `proxy` or `uncontrolledFetch` by the harness. */
export type OutgoingCall = {
  name: CallName;
  args: {
    method: string;
    /** For `proxy`. */
    endpoint?: string;
    /** Without the question mark. */
    query?: string;
    /** For `uncontrolledFetch`. */
    url?: string;
    headers?: Record<string, string>;
    retries?: number;
    retryOn?: number[];
    baseUrlOverride?: string;
    decompress?: boolean;
  };
  body: Buffer | undefined;
};

export type CallResponse = {
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
  /** Throws if the call gets no response from the provider. The signal aborts the call. */
  call(call: OutgoingCall, signal?: AbortSignal): Promise<CallResponse>;
  fact(name: FactName): Promise<Json>;
};

/**
 * Whether a call is safe (RFC 9110 §9.2.1): its method is safe, and it has nothing that could make a server treat it as
 * another method, such as `X-HTTP-Method-Override`. A call that only resembles an override is not a read either.
 */
export function isRead({ args }: OutgoingCall): boolean {
  const { method, endpoint = '', url = '', query = '', headers = {} } = args;
  if (!['GET', 'HEAD', 'OPTIONS'].includes(method.toUpperCase())) return false;
  if (Object.keys(headers).some((name) => overridingHeader.test(lettersOf(name)))) return false;
  const queries = [endpoint, url].map((address) => address.split('?').slice(1).join('&'));
  return ![...queries, query].some((text) =>
    [...new URLSearchParams(text)].some(([name, value]) => isOverride(name, value)),
  );
}

const overridingHeader = /method|override|(original|rewrite)ur[il]$/;

/** `payment_method=card` is a filter, `_method=DELETE` and `method=DELETE` are not. */
function isOverride(name: string, value: string): boolean {
  const letters = lettersOf(name);
  if (/^[_$]/.test(name) && /method|headers/.test(letters)) return true;
  if (/^x|override|httpheaders/.test(letters) && /method|ur[il]$|httpheaders/.test(letters)) return true;
  return /(method|verb)$/.test(letters) && METHODS.includes(value.trim().toUpperCase());
}

function lettersOf(name: string): string {
  return name.toLowerCase().replace(/[^a-z0-9]/g, '');
}

/** Formats a call as method, path and query. */
export function formatCall({ args }: OutgoingCall): string {
  const { method, endpoint, url, query } = args;
  const at = url ?? `${/^https?:/.test(endpoint ?? '') ? '' : '/'}${(endpoint ?? '').replace(/^\/+/, '')}`;
  return `${method} ${at}${query ? `${at.includes('?') ? '&' : '?'}${query}` : ''}`;
}
