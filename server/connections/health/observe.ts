import { queueEvent } from '../../events/outbox.ts';
import { apiFault, clearFault, integrationEvent, recordFault } from '../../integrations/fault.ts';
import type { ProviderDefinition } from '../../providers/definition.ts';
import { missingScopes } from '../../providers/scopes.ts';
import { type LiveConnection, placeOf } from '../store/reader.ts';
import { connectionEvent, queueConnectionEvent } from '../store/store.ts';
import { type ApiFault, classifyAnswer } from './api-faults.ts';
import { healthToWire, missingScopesOf } from './health.ts';
import type { HealthDeps } from './status-transitions.ts';

/** A response of a provider's API to a call for a connection. */
export type ObservedAnswer = {
  readonly url: string;
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** The first 16 KB of the body, decoded. Not used if the status is below 400. */
  readonly body: Buffer;
};

/**
 * Examines responses of a provider's API after the caller has got them.
 *
 * Owns: the consequences of a missing scope, a disabled API and an exhausted quota. Each is reported once, and an
 * exhausted quota at most once a minute. Does not own: the meaning of a response (`api-faults.ts`). Nothing here
 * changes a connection's status: the refresh after a 401 decides that, and a file that is not shared proves nothing
 * about the account.
 */
export type Observer = {
  /** Returns immediately and never throws. Writes in the background. */
  observe(connection: LiveConnection, answer: ObservedAnswer): void;
  /** Resolves when all observations are written. */
  settled(): Promise<void>;
};

const debounceMs = 60_000;
/** The maximum number of pending writes. Further responses are discarded, because they repeat the same facts. */
const maxWaiting = 32;
const maxRemembered = 10_000;

export function createObserver({ db, log, reader, now = () => new Date() }: HealthDeps): Observer {
  const waiting = new Set<Promise<void>>();
  /** When the throttling of a subject may be reported again, so that many 429s cause one query. */
  const reportedUntil = new Map<string, number>();

  async function record(connection: LiveConnection, answer: ObservedAnswer): Promise<void> {
    const { integration } = connection;
    const api = apiOf(answer.url);
    // A response to a connection's own client does not concern the integration's client.
    const { hasOwnClient } = connection;
    if (answer.status < 400) {
      if (hasOwnClient) return;
      const isProven = await db.transaction((tx) =>
        clearFault(tx, { integration, at: now(), proof: { api } }),
      );
      if (isProven) reader.forgetIntegration(connection);
      return;
    }
    const fault = classifyAnswer(integration.provider, { ...answer, body: answer.body.toString() });
    switch (fault.kind) {
      case 'scope_missing':
        return recordMissingScope(connection, fault.accepted);
      case 'api_disabled':
        if (hasOwnClient) return;
        return recordDisabledApi(connection, { ...fault, api });
      case 'rate_limited':
      case 'abuse_guard':
        return recordThrottling(connection, fault);
    }
  }

  async function recordMissingScope(connection: LiveConnection, accepted: string[]): Promise<void> {
    const { provider, scopes } = connection.integration;
    const lacking = missingScopeOf(provider, { accepted, wanted: scopes ?? provider.scopes.default });
    // A scope that was missing from the start was reported when the connection was created.
    if (lacking === undefined || missingScopesOf(connection, provider).includes(lacking)) return;
    // The call may have used a token that was refreshed since `connection` was read: the same grant, perhaps with
    // fewer scopes.
    const current = await reader.reread(connection);
    const isSameGrant = current.id === connection.id && current.grantedAt <= connection.grantedAt;
    if (!isSameGrant || missingScopesOf(current, provider).includes(lacking)) return;
    const isNews = await db.transaction(async (tx) => {
      const changed = await tx.query(
        `update connection
         set scopes_lacking = array_append(coalesce(scopes_lacking, '{}'), $4), lacks_scopes = true
         where id = $1
           and environment_id = $2
           and credentials_version = $3
           and deleted_at is null
           and not $4 = any(coalesce(scopes_lacking, '{}'))
         returning id`,
        [connection.id, connection.environmentId, current.credentialsVersion, lacking],
      );
      if (changed.length === 0) return false;
      await queueConnectionEvent(tx, connection, {
        type: 'connection.scopes_reduced',
        state: healthToWire(
          { ...current, scopesLacking: [...(current.scopesLacking ?? []), lacking] },
          provider,
        ).state,
        lost_scopes: [lacking],
      });
      return true;
    });
    if (isNews) reader.forget(placeOf(connection));
  }

  async function recordDisabledApi(
    connection: LiveConnection,
    given: Parameters<typeof apiFault>[0],
  ): Promise<void> {
    const { integration } = connection;
    const fault = apiFault(given, now());
    const isNews = await db.transaction((tx) => recordFault(tx, { integration, fault }));
    if (!isNews) return;
    log.error({ integration: integration.key, ...fault.evidence }, "the provider's API is disabled");
    reader.forgetIntegration(connection);
  }

  async function recordThrottling(
    connection: LiveConnection,
    fault: Extract<ApiFault, { kind: 'rate_limited' | 'abuse_guard' }>,
  ): Promise<void> {
    const isOfConnection =
      fault.kind === 'rate_limited' && (connection.hasOwnClient || fault.of === 'connection');
    const subject = isOfConnection ? 'connection' : 'integration';
    const id = isOfConnection ? connection.id : connection.integrationId;
    const at = now();
    const key = `${subject} ${id}`;
    if ((reportedUntil.get(key) ?? 0) > at.getTime()) return;
    if (reportedUntil.size >= maxRemembered) reportedUntil.clear();
    reportedUntil.set(key, at.getTime() + debounceMs);
    const limit = fault.kind === 'rate_limited' ? 'quota' : 'abuse_guard';
    const evidence = fault.kind === 'rate_limited' ? fault.evidence : {};
    await db.transaction(async (tx) => {
      const changed = await tx.query(
        `update ${subject}
         set rate_limited_at = $3
         where id = $1
           and environment_id = $2
           and (rate_limited_at is null or rate_limited_at <= $3::timestamptz - make_interval(secs => $4))
         returning id`,
        [id, connection.environmentId, at, debounceMs / 1000],
      );
      if (changed.length === 0) return;
      const about = isOfConnection ? connectionEvent(connection) : integrationEvent(connection.integration);
      await queueEvent(tx, {
        environmentId: connection.environmentId,
        type: isOfConnection ? 'connection.rate_limited' : 'integration.rate_limited',
        data: { ...about, limit, evidence },
      });
      if (limit === 'abuse_guard') {
        log.error(
          { integration: connection.integrationKey },
          'the provider blocks the calls as automated traffic',
        );
      }
    });
  }

  return {
    observe(connection, answer) {
      if (waiting.size >= maxWaiting) return;
      const recorded: Promise<void> = record(connection, answer)
        .catch((error: unknown) =>
          log.warn({ err: error }, "the result of an API's response could not be recorded"),
        )
        .finally(() => waiting.delete(recorded));
      waiting.add(recorded);
    },
    async settled() {
      while (waiting.size > 0) await Promise.all(waiting);
    },
  };
}

/**
 * The scope to request if each of `accepted` would suffice: preferably a scope of the integration, else the least
 * sensitive one. Undefined if the provider named none.
 */
function missingScopeOf(
  provider: Pick<ProviderDefinition, 'scopes'>,
  { accepted, wanted }: { accepted: string[]; wanted: readonly string[] },
): string | undefined {
  const outside = missingScopes(provider, { wanted, granted: accepted });
  const own = wanted.find((scope) => !outside.includes(scope));
  if (own !== undefined) return own;
  const order = ['non_sensitive', 'sensitive', 'restricted'];
  const rank = (scope: string) => {
    const known = provider.scopes.catalogue[scope];
    return known ? order.indexOf(known.sensitivity) : order.length;
  };
  return accepted.toSorted((one, other) => rank(one) - rank(other))[0];
}

/** Origin and first path segment: a provider's APIs are enabled one by one. */
function apiOf(url: string): string {
  const parsed = URL.parse(url);
  return parsed === null ? '' : `${parsed.origin}/${parsed.pathname.split('/')[1] ?? ''}`;
}
