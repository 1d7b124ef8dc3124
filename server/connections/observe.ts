import type { Db } from '../db/pool.ts';
import { queueEvent } from '../events/outbox.ts';
import { apiFault, integrationEvent, noteMisconfigured, noteProven } from '../integrations/fault.ts';
import type { Logger } from '../log.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { missingScopes } from '../providers/scopes.ts';
import { type ApiFault, judgeAnswer } from './api-faults.ts';
import { connectionEvent } from './event.ts';
import { missingScopesOf } from './health.ts';
import { type ConnectionReader, type LiveConnection, placeOf } from './reader.ts';

/** What came back from a provider's API for a connection. */
export type ObservedAnswer = {
  /** Where the call went. */
  readonly url: string;
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** The first 16 KB of the body, decoded. Not looked at where the status is below 400. */
  readonly body: Buffer;
};

/**
 * Learns from the answers of a provider's API, after they went to the caller.
 *
 * Owns: what they lead to: a missing scope, an API that is switched off, quotas that are used up, each told once and
 * quotas at most once a minute. Does not own: what an answer says (`api-faults.ts`). Nothing here changes a
 * connection's status: a 401 is the refresh's to judge, and a file that is not shared says nothing of the account.
 */
export type Observer = {
  /** Whether such an answer could say anything. To be asked first, since it costs next to nothing. */
  wants(connection: LiveConnection, status: number): boolean;
  /** Returns at once and never throws; what is to be written is written in the background. */
  observe(connection: LiveConnection, answer: ObservedAnswer): void;
  /** Resolves once what has been observed is written. */
  settled(): Promise<void>;
};

const debounceMs = 60_000;
/** The maximum number of waiting writes; the rest of a flood is discarded, since it says the same. */
const maxWaiting = 32;
const maxRemembered = 10_000;

export function createObserver({
  db,
  log,
  reader,
  now = () => new Date(),
}: {
  db: Db;
  log: Logger;
  reader: Pick<ConnectionReader, 'forget' | 'forgetIntegration' | 'reread'>;
  now?: () => Date;
}): Observer {
  const waiting = new Set<Promise<void>>();
  /** Until when a subject's throttling need not be told again, so that a flood of 429s asks the database once. */
  const toldUntil = new Map<string, number>();

  async function note(connection: LiveConnection, answer: ObservedAnswer): Promise<void> {
    const { integration } = connection;
    const api = apiOf(answer.url);
    // What is said of a client that the connection brought along says nothing of the integration's.
    const { hasOwnClient } = connection;
    if (answer.status < 400) {
      if (hasOwnClient) return;
      const isProven = await db.transaction((tx) =>
        noteProven(tx, { integration, at: now(), proof: { api } }),
      );
      if (isProven) reader.forgetIntegration(connection);
      return;
    }
    const fault = judgeAnswer(integration.provider, { ...answer, body: answer.body.toString() });
    switch (fault.kind) {
      case 'scope_missing':
        return noteLacking(connection, fault.accepted);
      case 'api_disabled':
        if (hasOwnClient) return;
        return noteDisabled(connection, { ...fault, api });
      case 'rate_limited':
      case 'abuse_guard':
        return noteThrottled(connection, fault);
    }
  }

  async function noteLacking(connection: LiveConnection, accepted: string[]): Promise<void> {
    const { provider, scopes } = connection.integration;
    const lacking = lackingOf(provider, { accepted, wanted: scopes ?? provider.scopes.default });
    // Where it was missing from the start, the connection said so when it was made.
    if (lacking === undefined || missingScopesOf(connection, provider).includes(lacking)) return;
    // The call may have gone with a token refreshed since `connection` was read: the same grant, perhaps told of less.
    const current = await reader.reread(connection);
    const isSameGrant = current.id === connection.id && current.grantedAt <= connection.grantedAt;
    if (!isSameGrant || missingScopesOf(current, provider).includes(lacking)) return;
    const isNews = await db.transaction(async (tx) => {
      const changed = await tx.query(
        `update connection
         set scopes_lacking = array_append(coalesce(scopes_lacking, '{}'), $4)
         where id = $1
           and environment_id = $2
           and credentials_version = $3
           and deleted_at is null
           and not $4 = any(coalesce(scopes_lacking, '{}'))
         returning id`,
        [connection.id, connection.environmentId, current.credentialsVersion, lacking],
      );
      if (changed.length === 0) return false;
      await queueEvent(tx, {
        environmentId: connection.environmentId,
        type: 'connection.scopes_reduced',
        data: { ...connectionEvent(connection), lost_scopes: [lacking] },
      });
      return true;
    });
    if (isNews) reader.forget(placeOf(connection));
  }

  async function noteDisabled(
    connection: LiveConnection,
    given: Parameters<typeof apiFault>[0],
  ): Promise<void> {
    const { integration } = connection;
    const fault = apiFault(given, now());
    const isNews = await db.transaction((tx) => noteMisconfigured(tx, { integration, fault }));
    if (!isNews) return;
    log.error({ integration: integration.key, ...fault.evidence }, "the provider's API is switched off");
    reader.forgetIntegration(connection);
  }

  async function noteThrottled(
    connection: LiveConnection,
    fault: Extract<ApiFault, { kind: 'rate_limited' | 'abuse_guard' }>,
  ): Promise<void> {
    const isOfConnection =
      fault.kind === 'rate_limited' && (connection.hasOwnClient || fault.of === 'connection');
    const subject = isOfConnection ? 'connection' : 'integration';
    const id = isOfConnection ? connection.id : connection.integrationId;
    const at = now();
    const key = `${subject} ${id}`;
    if ((toldUntil.get(key) ?? 0) > at.getTime()) return;
    if (toldUntil.size >= maxRemembered) toldUntil.clear();
    toldUntil.set(key, at.getTime() + debounceMs);
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
          'the provider takes the calls for those of a robot',
        );
      }
    });
  }

  return {
    wants: ({ integration }, status) =>
      (status >= 400 && status < 500) || integration.fault?.cause === 'api_disabled',
    observe(connection, answer) {
      if (waiting.size >= maxWaiting) return;
      const noted: Promise<void> = note(connection, answer)
        .catch((error: unknown) => log.warn({ err: error }, "what an API's answer says was not noted"))
        .finally(() => waiting.delete(noted));
      waiting.add(noted);
    },
    async settled() {
      while (waiting.size > 0) await Promise.all(waiting);
    },
  };
}

/**
 * The one scope to ask for, where any of `accepted` would do: one that the integration wants anyway, else the least
 * sensitive. Undefined where the provider named none.
 */
function lackingOf(
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

/** Origin and first part of the path: APIs of one provider are switched on one by one. */
function apiOf(url: string): string {
  const parsed = URL.parse(url);
  return parsed === null ? '' : `${parsed.origin}/${parsed.pathname.split('/')[1] ?? ''}`;
}
