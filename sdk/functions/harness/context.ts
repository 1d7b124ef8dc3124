import type { z } from 'zod';
import type {
  ActionContext,
  Context,
  IntegrationParts,
  LogLevel,
  MetadataAnswer,
  RenewalOptions,
} from '../context.ts';
import type { Method, ProxyConfiguration } from '../http.ts';
import { uncontrolledFetch } from './fetched.ts';
import { paginate } from './paginate.ts';
import { proxiedCall } from './proxied-call.ts';
import { type About, bytesOf, type Service } from './service.ts';

const levels: readonly unknown[] = ['debug', 'info', 'warn', 'error'] satisfies LogLevel[];
/** The maximum number of records of one call. */
const maxIds = 100;
/** How long the service's answers about connection, integration and metadata are cached. */
const cachedMs = 60_000;

/** The context of every function. `sync-context.ts` extends it for syncs. */
export function createContext(service: Service, about: About): ActionContext {
  const call = async <T>(name: string, args: unknown = {}): Promise<T> =>
    (await service.call(name, args)).value as T;
  const proxied = async (config: ProxyConfiguration) => {
    requireOwn(about, config);
    return proxiedCall(service, config);
  };
  const by = (method: Method) => (config: ProxyConfiguration) => proxied({ ...config, method });
  const connection = cached(() => call('getConnection'));
  const integration = cached(() => call('getIntegration'));
  const metadata = cached(() => call('getMetadata'));
  async function changing(name: string, value: unknown): Promise<MetadataAnswer> {
    await call(name, { metadata: value });
    metadata.forget();
    connection.forget();
    return metadataAnswer(about, { isWhole: name === 'setMetadata', value });
  }
  const context = {
    connectionId: about.connectionId,
    providerConfigKey: about.providerConfigKey,
    provider: about.provider,
    environmentName: about.environmentName,
    variant: about.variant,
    getVariant: () => about.variant,
    signal: service.signal,

    get: by('GET'),
    post: by('POST'),
    put: by('PUT'),
    patch: by('PATCH'),
    delete: by('DELETE'),
    proxy: proxied,
    paginate: (config: ProxyConfiguration) => paginate(proxied, config, about.paginate),
    uncontrolledFetch: (request: Parameters<Context['uncontrolledFetch']>[0]) =>
      uncontrolledFetch(service, request),

    async getConnection(providerConfigKey?: string, connectionId?: string, options?: RenewalOptions) {
      requireOwn(about, { providerConfigKey, connectionId });
      if (options?.refreshToken)
        throw notGiven('refresh tokens', 'the service refreshes tokens. Call getToken for a valid token.');
      return options?.forceRefresh
        ? connection.replace(() => call('getConnection', { forceRefresh: true }))
        : connection.get();
    },
    async getIntegration(parts?: { include?: IntegrationParts | IntegrationParts[] }) {
      if ([parts?.include ?? []].flat().includes('credentials'))
        throw notGiven('the credentials of the integration', 'the service makes the calls that need them.');
      return integration.get();
    },
    getToken: () => call('getToken'),
    getEnvironmentVariables: () => call('getEnvironmentVariables'),
    getWebhookURL: () => call('getWebhookURL'),

    getMetadata: () => metadata.get(),
    setMetadata: (value: unknown) => changing('setMetadata', value),
    updateMetadata: (value: unknown) => changing('updateMetadata', value),

    getCheckpoint: () => call('getCheckpoint'),
    async saveCheckpoint(checkpoint: unknown) {
      await call('saveCheckpoint', { checkpoint });
      if (service.signal.aborted) throw stopped();
    },
    clearCheckpoint: () => call('clearCheckpoint'),

    async getState(of?: unknown) {
      const { value, body } = await service.call('getState', { of });
      return value === true ? (await bytesOf(body)).toString('utf8') : null;
    },
    async saveState(state: unknown) {
      await service.call('saveState', {}, [String(state)]);
    },

    log: async (message: unknown, ...more: unknown[]) => writeLog(service, [message, ...more]),

    tryAcquireLock: ({ key, ttlMs }: { key: string; ttlMs: number }) =>
      call('tryAcquireLock', { key, ttlMs }),
    releaseLock: ({ key }: { key: string }) => call('releaseLock', { key }),
    releaseAllLocks: () => call('releaseAllLocks'),

    async getStoredRecords({ ids, ...of }: { ids: string[]; model: string; variant?: string }) {
      const found: unknown[] = [];
      for (let from = 0; from < ids.length; from += maxIds) {
        found.push(
          ...(await call<unknown[]>('getStoredRecords', { ...of, ids: ids.slice(from, from + maxIds) })),
        );
      }
      return found;
    },

    ActionError,
    async zodValidateInput({ zodSchema, input }: { zodSchema: z.ZodType; input: unknown }) {
      const read = zodSchema.safeParse(input);
      if (read.success) return read;
      const faults = read.error.issues.map(({ path, message }) => ({ path: path.join('.'), message }));
      for (const { path, message } of faults) writeLog(service, [`${path}: ${message}`, { level: 'error' }]);
      throw new ActionError({
        type: 'invalid_action_input',
        message: 'The input does not fit.',
        errors: faults,
      });
    },
  };
  // The service returns untyped values. The type is the promise of the SDK.
  return context as unknown as ActionContext;
}

/** `{ level }` as the last part sets the level. Other parts are written as JSON. */
function writeLog(service: Service, parts: unknown[]): void {
  const last = parts.at(-1);
  let level: unknown = 'info';
  if (parts.length > 1 && typeof last === 'object' && last !== null && 'level' in last) {
    ({ level } = last);
    if (levels.includes(level) && Object.keys(last).length === 1) parts.pop();
  }
  const words = parts.map((part) => (typeof part === 'string' ? part : safeJson(part)));
  service.log(levels.includes(level) ? String(level) : 'info', words.join(' '));
}

function safeJson(value: unknown): string {
  if (value instanceof Error) return `${value.name}: ${value.message}`;
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return String(value);
  }
}

/** The response of the API to a change of metadata. */
function metadataAnswer(
  { connectionId: connection_id, providerConfigKey: provider_config_key }: About,
  { isWhole, value }: { isWhole: boolean; value: unknown },
): MetadataAnswer {
  return {
    ...(isWhole ? { status: 201, statusText: 'Created' } : { status: 200, statusText: 'OK' }),
    headers: {},
    config: { endpoint: '/connections/metadata', method: isWhole ? 'POST' : 'PATCH' },
    data: { connection_id, provider_config_key, metadata: value as Record<string, unknown> },
  };
}

/** A value that is loaded at most once while it is cached, also for concurrent reads. */
function cached<T>(load: () => Promise<T>) {
  let known: { value: Promise<T>; until: number } | undefined;
  function store(value: Promise<T>): Promise<T> {
    const entry = { value, until: Date.now() + cachedMs };
    known = entry;
    value.catch(() => {
      if (known === entry) known = undefined;
    });
    return value;
  }
  return {
    get: (): Promise<T> => (known === undefined || Date.now() > known.until ? store(load()) : known.value),
    /** Loads the value in this way, even if one is cached. */
    replace: (loadNow: () => Promise<T>): Promise<T> => store(loadNow()),
    forget() {
      known = undefined;
    },
  };
}

/**
 * Throws `other_connection` if a call names another connection or integration than that of the run: it would use the wrong
 * account. An absent or empty name means that of the run.
 */
function requireOwn(
  about: About,
  named: { providerConfigKey?: string | undefined; connectionId?: string | undefined },
): void {
  const integration = named.providerConfigKey || about.providerConfigKey;
  const connection = named.connectionId || about.connectionId;
  if (integration === about.providerConfigKey && connection === about.connectionId) return;
  throw Object.assign(
    new Error(
      `The call names the connection "${connection}" of "${integration}". This run is for "${about.connectionId}" of ` +
        `"${about.providerConfigKey}", and a function cannot use any other connection.`,
    ),
    { code: 'other_connection' },
  );
}

/** The error for a value that functions do not get. */
function notGiven(what: string, why: string): Error {
  return Object.assign(new Error(`Functions do not get ${what}: ${why}`), {
    code: 'not_told_to_functions',
  });
}

/** The error that ends a run that must stop. */
export function stopped(): Error {
  const error = new Error('The run must stop. The next run continues from its checkpoint.');
  return Object.assign(error, { code: 'stopped' });
}

/** An error that an action throws on purpose: the payload goes to the action's caller. */
export class ActionError extends Error {
  readonly type: string;
  readonly payload: Record<string, unknown>;
  readonly code = 'action_error';

  /** A text is the message of the payload. */
  constructor(given: Record<string, unknown> | string = {}) {
    const payload = typeof given === 'string' ? { message: given } : given;
    const { message, type } = payload as Record<string, unknown>;
    super(typeof message === 'string' ? message : 'The action failed.');
    this.name = 'ActionError';
    this.type = typeof type === 'string' ? type : 'action_script_runtime_error';
    this.payload = payload;
  }
}
