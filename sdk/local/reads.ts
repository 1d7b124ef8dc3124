/** What a run reads from outside: answers of providers, and what the service knows of its connection. */
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
  /** Throws where there is no answer of the one that was called. */
  call(call: OutgoingCall): Promise<CallAnswer>;
  fact(name: FactName): Promise<Json>;
};

/** Such a call changes nothing at whoever is called (RFC 9110 §9.2.1). */
export function isRead({ args: { method } }: OutgoingCall): boolean {
  return ['GET', 'HEAD', 'OPTIONS'].includes(method.toUpperCase());
}

/** As people write it: method, path and query. */
export function titleOf({ args }: OutgoingCall): string {
  const { method, endpoint, url, query } = args;
  const at = url ?? `${/^https?:/.test(endpoint ?? '') ? '' : '/'}${(endpoint ?? '').replace(/^\/+/, '')}`;
  return `${method} ${at}${query ? `${at.includes('?') ? '&' : '?'}${query}` : ''}`;
}
