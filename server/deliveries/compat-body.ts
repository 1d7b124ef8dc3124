import type { CompatType } from '../events/compat-types.ts';

/**
 * Bodies in the form that official clients know. An event that is to have one gets a line in `events/compat-types.ts`
 * and a writer here.
 */

type Facts = {
  environment: string;
  brandWord: string;
  data: Readonly<Record<string, unknown>>;
  /** Of a webhook: what the provider sent. */
  payload?: unknown;
  /** `OAUTH2`, `API_KEY`, ...; undefined where the catalogue no longer has the provider. */
  authModeOf: (provider: string) => string | undefined;
};
type Body = Record<string, unknown>;

const writers: Record<CompatType, (facts: Facts) => unknown> = {
  'connection.created': (facts) => auth(facts, { operation: 'creation', success: true }),
  'connection.reconnected': (facts) => auth(facts, { operation: 'override', success: true }),
  'connection.connect_failed': (facts) => ({
    ...auth(facts, {
      operation: facts.data.connection_id === null ? 'creation' : 'override',
      success: false,
    }),
    error: errorOf(facts),
  }),
  'connection.needs_reauth': (facts) => ({
    ...auth(facts, { operation: 'refresh', success: false }),
    error: errorOf(facts),
  }),
  'connection.blocked': (facts) => ({
    ...auth(facts, { operation: 'refresh', success: false }),
    error: errorOf(facts),
  }),
  'sync.changed': (facts) => synced(facts),
  'sync.unchanged': (facts) => synced(facts),
  'action.succeeded': (facts) => actionOver(facts),
  'action.failed': (facts) => actionOver(facts),
  'webhook.received': (facts) => forwarded(facts),
  'sync.failed': (facts) => {
    const { code, message } = facts.data.error as { code: string; message: string };
    return {
      ...sync(facts, { success: false }),
      error: { type: code, description: message },
      startedAt: facts.data.started_at,
      failedAt: facts.data.failed_at,
    };
  },
};

/** The body as it is signed and sent: JSON with sorted keys, at every depth. */
export function compatBody(type: CompatType, facts: Facts): string {
  return JSON.stringify(sorted(writers[type](facts)));
}

function auth(
  { environment, brandWord, data, authModeOf }: Facts,
  outcome: { operation: 'creation' | 'override' | 'refresh'; success: boolean },
): Body {
  const tags = (data.tags ?? {}) as Record<string, string>;
  const endUser = data.end_user as { id: string } | null | undefined;
  return {
    from: brandWord,
    type: 'auth',
    // Of a trip that was to make a connection and failed there is none.
    connectionId: data.connection_id ?? '',
    providerConfigKey: data.provider_config_key,
    provider: data.provider,
    authMode: authModeOf(String(data.provider)) ?? 'unknown',
    environment,
    ...outcome,
    ...(Object.keys(tags).length > 0 && { tags }),
    ...(endUser && {
      endUser: {
        endUserId: endUser.id,
        ...(tags.end_user_email !== undefined && { endUserEmail: tags.end_user_email }),
        ...(tags.organization_id !== undefined && { organizationId: tags.organization_id }),
        tags,
      },
    }),
  };
}

function sync({ brandWord, data }: Facts, outcome: { success: boolean }): Body {
  return {
    from: brandWord,
    type: 'sync',
    connectionId: data.connection_id,
    providerConfigKey: data.provider_config_key,
    syncName: data.function,
    syncVariant: data.variant,
    syncType: data.sync_type,
    ...outcome,
  };
}

function synced(facts: Facts): Body {
  const { model, started_at: startedAt, added = 0, updated = 0, deleted = 0 } = facts.data;
  return {
    ...sync(facts, { success: true }),
    model,
    modifiedAfter: startedAt,
    queryTimeStamp: startedAt,
    responseResults: { added, updated, deleted },
  };
}

/** Whether it failed is told by who is asked for the outcome. */
function actionOver({ brandWord, data }: Facts): Body {
  return {
    from: brandWord,
    type: 'async_action',
    connectionId: data.connection_id,
    providerConfigKey: data.provider_config_key,
    payload: { id: data.run, statusUrl: `/action/${data.run}` },
  };
}

/** One for no connection of ours goes on as the provider sent it. */
function forwarded({ data, payload = null }: Facts): unknown {
  if (data.connection_id === null) return payload;
  return {
    from: data.provider,
    type: 'forward',
    connectionId: data.connection_id,
    providerConfigKey: data.provider_config_key,
    payload,
  };
}

function errorOf({ data }: Facts): Body {
  return { type: data.cause, description: data.next_step };
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1));
  return Object.fromEntries(entries.map(([key, inner]) => [key, sorted(inner)]));
}
