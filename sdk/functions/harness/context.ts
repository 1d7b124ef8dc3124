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
import { ActionError } from './action-error.ts';
import { uncontrolledFetch } from './fetched.ts';
import { notGiven, requireOwn } from './own-place.ts';
import { paginate } from './paginate.ts';
import { proxiedCall } from './proxied-call.ts';
import { type About, bytesOf, type Service } from './service.ts';
import { stopped } from './stopped.ts';

const levels: readonly unknown[] = ['debug', 'info', 'warn', 'error'] satisfies LogLevel[];
/** Records that are asked for at once. */
const maxIds = 100;
/** How long the service's answers about connection, integration and metadata are cached. */
const cachedMs = 60_000;

/** What every function is given; a sync's is made of it in `sync-context.ts`. */
export function createContext(service: Service, about: About): ActionContext {
  const ask = async <T>(name: string, args: unknown = {}): Promise<T> =>
    (await service.ask(name, args)).value as T;
  const proxied = async (config: ProxyConfiguration) => {
    requireOwn(about, config);
    return proxiedCall(service, config);
  };
  const by = (method: Method) => (config: ProxyConfiguration) => proxied({ ...config, method });
  const connection = cached(() => ask('getConnection'));
  const integration = cached(() => ask('getIntegration'));
  const metadata = cached(() => ask('getMetadata'));
  async function changing(name: string, value: unknown): Promise<MetadataAnswer> {
    await ask(name, { metadata: value });
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
        throw notGiven('refreshToken', 'the service renews tokens, getToken has a good one.');
      return options?.forceRefresh
        ? connection.replace(() => ask('getConnection', { forceRefresh: true }))
        : connection.get();
    },
    async getIntegration(parts?: { include?: IntegrationParts | IntegrationParts[] }) {
      if ([parts?.include ?? []].flat().includes('credentials'))
        throw notGiven(
          'What the integration is called with (`credentials`)',
          'the service makes the calls that need it.',
        );
      return integration.get();
    },
    getToken: () => ask('getToken'),
    getEnvironmentVariables: () => ask('getEnvironmentVariables'),
    getWebhookURL: () => ask('getWebhookURL'),

    getMetadata: () => metadata.get(),
    setMetadata: (value: unknown) => changing('setMetadata', value),
    updateMetadata: (value: unknown) => changing('updateMetadata', value),

    getCheckpoint: () => ask('getCheckpoint'),
    async saveCheckpoint(checkpoint: unknown) {
      await ask('saveCheckpoint', { checkpoint });
      if (service.signal.aborted) throw stopped();
    },
    clearCheckpoint: () => ask('clearCheckpoint'),

    async getState(of?: unknown) {
      const { value, body } = await service.ask('getState', { of });
      return value === true ? (await bytesOf(body)).toString('utf8') : null;
    },
    async saveState(state: unknown) {
      await service.ask('saveState', {}, [String(state)]);
    },

    log: async (message: unknown, ...more: unknown[]) => writeLog(service, [message, ...more]),

    tryAcquireLock: ({ key, ttlMs }: { key: string; ttlMs: number }) => ask('tryAcquireLock', { key, ttlMs }),
    releaseLock: ({ key }: { key: string }) => ask('releaseLock', { key }),
    releaseAllLocks: () => ask('releaseAllLocks'),

    async getStoredRecords({ ids, ...of }: { ids: string[]; model: string; variant?: string }) {
      const found: unknown[] = [];
      for (let from = 0; from < ids.length; from += maxIds) {
        found.push(
          ...(await ask<unknown[]>('getStoredRecords', { ...of, ids: ids.slice(from, from + maxIds) })),
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
  // Answers are whatever the service says; it is typed by what is promised of it.
  return context as unknown as ActionContext;
}

/** `{ level }` as the last part says the level; other parts are shown as JSON. */
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

/** As the interface answers the call that changes metadata. */
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
    const asked = { value, until: Date.now() + cachedMs };
    known = asked;
    value.catch(() => {
      if (known === asked) known = undefined;
    });
    return value;
  }
  return {
    get: (): Promise<T> => (known === undefined || Date.now() > known.until ? store(load()) : known.value),
    /** Loads the value in this way, even if one is cached. */
    replace: (ask: () => Promise<T>): Promise<T> => store(ask()),
    forget() {
      known = undefined;
    },
  };
}
