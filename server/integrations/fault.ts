/**
 * Faults of an integration as a whole: the provider refuses our client, or its API is disabled. They change no state
 * of a connection, since its user cannot remedy them.
 *
 * A refused client is probed by one refresh of one of its connections, for all nodes together, at intervals that grow
 * from a minute to an hour.
 *
 * Owns: the causes, the columns `fault`, `probes` and `probe_at`, and the events. Does not own: the refresh
 * (`connections/refresh/keepalive.ts`), the suspension of connections whose tokens the client may not use
 * (`connections/store/suspension.ts`), faults of a connection (`connections/health/health.ts`).
 */
import type { TokenFault } from '../auth-modes/token-fault.ts';
import type { Queryable } from '../db/pool.ts';
import type { IntegrationSubject } from '../events/event-types.ts';
import { queueEvent } from '../events/outbox.ts';
import type { Integration } from './store.ts';

type IntegrationCause =
  | 'client_refused'
  | 'client_deleted'
  | 'client_misconfigured'
  | 'client_not_allowed'
  | 'api_disabled';

export type IntegrationFault = {
  cause: IntegrationCause;
  evidence: Record<string, string | number>;
  /** ISO 8601. */
  since: string;
  next_step: string;
};

const nextSteps: Record<IntegrationCause, string> = {
  client_refused:
    "The provider rejects the client ID or the client secret. Check both in the provider's console and enter them again.",
  client_deleted:
    "The OAuth client was deleted in the provider's console. Restore it there, or set up a new client; users of the old client must connect again.",
  client_misconfigured:
    "The provider rejects a setting of the integration. Compare its settings with those in the provider's console.",
  client_not_allowed:
    "The provider does not allow the client to use or to request a token of a connection: the token was issued to another client, the client may not refresh, or the account does not allow the client. Check the client and the connection's settings; the user of a connection that was imported, or created with another client, must connect again. The refresh is retried every hour.",
  api_disabled:
    "The API is not enabled in the client's project. Enable it in the provider's console, then wait a few minutes.",
};

/** Codes for the client itself at any provider; a definition may have more. */
const causeOfCode: Readonly<Record<string, IntegrationCause>> = {
  invalid_client: 'client_refused',
  deleted_client: 'client_deleted',
};

/** The time between a fault and the first probe. */
const firstProbeS = 60;

/** The integration in events and statements of this file. */
type IntegrationRef = Pick<Integration, 'id' | 'environmentId' | 'key' | 'isTest'> & {
  provider: { name: string };
};

/** Whether the fault stops all refreshes of the integration. A disabled API stops none. */
export function keepsFromRefresh({ cause }: Pick<IntegrationFault, 'cause'>): boolean {
  return cause !== 'api_disabled';
}

/** Whether a token request was refused for one connection, which the client may not use or act for; RFC 6749 §5.2. */
export function isOfOneGrant({ kind, error, isOfOneGrant: isOfOne }: TokenFault): boolean {
  return kind === 'client_misconfigured' && (isOfOne === true || error === 'unauthorized_client');
}

/** Whether the provider refused the client itself, and not a setting, a scope or a code. */
export function isOfClient({ kind, error = '', isOfClient: isNamed }: TokenFault): boolean {
  return kind === 'client_misconfigured' && (isNamed === true || Object.hasOwn(causeOfCode, error));
}

/** The fault of a refused token request. `connectionId` is that of a refresh. */
export function clientFault(
  fault: TokenFault,
  { connectionId, at }: { connectionId?: string; at: Date },
): IntegrationFault {
  const { error = '', httpStatus } = fault;
  const ofClient = Object.hasOwn(causeOfCode, error) ? causeOfCode[error]! : 'client_refused';
  const ofAll = isOfClient(fault) ? ofClient : 'client_misconfigured';
  const cause = isOfOneGrant(fault) ? 'client_not_allowed' : ofAll;
  return {
    cause,
    evidence: {
      error,
      ...(httpStatus !== undefined && { http_status: httpStatus }),
      ...(connectionId !== undefined && { connection_id: connectionId }),
    },
    since: at.toISOString(),
    next_step: nextSteps[cause],
  };
}

/** The fault of a disabled API. `api` is its origin and the first part of its path. */
export function apiFault(
  { activationUrl, service, api }: { activationUrl?: string; service?: string; api: string },
  at: Date,
): IntegrationFault {
  return {
    cause: 'api_disabled',
    evidence: {
      api,
      ...(service !== undefined && { service }),
      ...(activationUrl !== undefined && { activation_url: activationUrl }),
    },
    since: at.toISOString(),
    next_step:
      activationUrl === undefined
        ? nextSteps.api_disabled
        : `${nextSteps.api_disabled} Address: ${activationUrl}`,
  };
}

/**
 * Stores the fault and its event `integration.misconfigured`, unless the integration has the same cause, or has any
 * cause while this one is a disabled API. Returns whether it did.
 */
export async function recordFault(
  tx: Queryable,
  { integration, fault }: { integration: IntegrationRef; fault: IntegrationFault },
): Promise<boolean> {
  const changed = await tx.query(
    `update integration
     set fault = $3, probes = 0, probe_at = $4
     where id = $1
       and environment_id = $2
       and (fault is null or ($5 <> 'api_disabled' and fault->>'cause' <> $5))
     returning id`,
    [
      integration.id,
      integration.environmentId,
      JSON.stringify(fault),
      keepsFromRefresh(fault) ? new Date(Date.parse(fault.since) + firstProbeS * 1000) : null,
      fault.cause,
    ],
  );
  if (changed.length === 0) return false;
  await queueEvent(tx, {
    environmentId: integration.environmentId,
    type: 'integration.misconfigured',
    data: { ...integrationEvent(integration), ...fault },
  });
  return true;
}

/**
 * Clears a disproved fault, with its event `integration.recovered`. A token request with an accepted client disproves
 * a fault of the client; a successful call of an API disproves that it is disabled. Returns whether there was such a
 * fault.
 */
export async function clearFault(
  tx: Queryable,
  { integration, at, proof }: { integration: IntegrationRef; at: Date; proof: 'client' | { api: string } },
): Promise<boolean> {
  const [cleared] = await tx.query<{ fault: IntegrationFault }>(
    `with known as (
       select id, fault
       from integration
       where id = $1
         and environment_id = $2
         and case fault->>'cause'
           when 'api_disabled' then fault->'evidence'->>'api' = $3
           else fault is not null and $3::text is null
         end
       for update
     )
     update integration
     set fault = null, probes = 0, probe_at = null
     from known
     where integration.id = known.id
     returning known.fault`,
    [integration.id, integration.environmentId, proof === 'client' ? null : proof.api],
  );
  if (cleared === undefined) return false;
  const { cause, since } = cleared.fault;
  await queueEvent(tx, {
    environmentId: integration.environmentId,
    type: 'integration.recovered',
    data: { ...integrationEvent(integration), cause, since, recovered_at: at.toISOString() },
  });
  return true;
}

/** The fields of every event about an integration. */
export function integrationEvent(integration: IntegrationRef): IntegrationSubject {
  return {
    provider_config_key: integration.key,
    provider: integration.provider.name,
    test: integration.isTest,
  };
}

const longestProbeS = 3600;
/** The number of doublings of the interval; `probes` counts on, beyond the range of a power. */
const maxDoublings = 10;

/** Also due when it is later than the longest interval: a node with a wrong clock wrote it. */
const isDue = (now: string) =>
  `(probe_at <= ${now} or probe_at > ${now}::timestamptz + make_interval(secs => ${2 * longestProbeS}))`;

/** Claims the next probe if it is due. The interval until the following one is longer. */
export async function claimProbe(
  db: Queryable,
  { integration, at }: { integration: Pick<IntegrationRef, 'id' | 'environmentId'>; at: Date },
): Promise<boolean> {
  const claimed = await db.query(
    `update integration
     set probes = probes + 1,
       probe_at = $3::timestamptz + make_interval(secs => least($4 * 2 ^ least(probes + 1, $6), $5))
     where id = $1
       and environment_id = $2
       and ${isDue('$3')}
     returning id`,
    [integration.id, integration.environmentId, at, firstProbeS, longestProbeS, maxDoublings],
  );
  return claimed.length > 0;
}

/** The shortest time between two probes that users demand. */
const minGapS = 10;

/** Makes the next probe due at once, unless the previous one was less than ten seconds ago. */
export async function expediteProbe(
  db: Queryable,
  { integration, at }: { integration: Pick<IntegrationRef, 'id' | 'environmentId'>; at: Date },
): Promise<void> {
  await db.query(
    `update integration
     set probe_at = $3
     where id = $1
       and environment_id = $2
       and probe_at - make_interval(secs => least($4 * 2 ^ least(probes, $6), $5) - $7) <= $3::timestamptz`,
    [integration.id, integration.environmentId, at, firstProbeS, longestProbeS, maxDoublings, minGapS],
  );
}

/** `probes` is the number of previous probes. */
export type DueProbe = IntegrationRef & { fault: IntegrationFault; probes: number };

/** Integrations with a due probe, of all environments, the longest overdue first. */
export async function listDueProbes(
  db: Queryable,
  { at, isSandboxOn, limit }: { at: Date; isSandboxOn: boolean; limit: number },
): Promise<DueProbe[]> {
  return db.query<DueProbe>(
    `select id, environment_id as "environmentId", key, is_test as "isTest", fault, probes,
       jsonb_build_object('name', provider) as provider
     from integration
     where ${isDue('$1')}
       and fault is not null
       and ($2 or not is_test)
     order by probe_at
     limit $3`,
    [at, isSandboxOn, limit],
  );
}
