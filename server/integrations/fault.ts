import type { TokenFault } from '../auth-modes/token-fault.ts';
import type { Queryable } from '../db/pool.ts';
import { queueEvent } from '../events/outbox.ts';
import type { Integration } from './store.ts';

/**
 * What ails an integration as a whole: the provider refuses our client, or its API is switched off. No connection
 * changes its state for that: there is nothing its user could do.
 *
 * Owns: these causes, their columns and events, how slowly a refused client is tried again. Does not own: faults of
 * a connection (`connections/health.ts`).
 */
export type IntegrationCause =
  | 'client_refused'
  | 'client_deleted'
  | 'client_not_allowed'
  | 'client_misconfigured'
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
    "The provider does not know the client ID or refuses the client secret. Check both in the provider's console and set them anew.",
  client_deleted:
    "The OAuth client was deleted in the provider's console. Restore it there, or set up another; connections of the old one must connect again.",
  client_not_allowed:
    'The provider does not let this client use the token: it was given to another client, or refreshing is not allowed. Check the client; if the connection was imported, connect it again.',
  client_misconfigured:
    "The provider refuses a setting of the integration. Compare its settings with those in the provider's console.",
  api_disabled:
    "The API is not enabled in the client's project. Enable it in the provider's console, then wait a few minutes.",
};

const causeOfCode: Readonly<Record<string, IntegrationCause>> = {
  invalid_client: 'client_refused',
  deleted_client: 'client_deleted',
  unauthorized_client: 'client_not_allowed',
};

const firstProbeS = 60;
const longestProbeS = 3600;

type Ref = Pick<Integration, 'id' | 'environmentId' | 'key' | 'isTest'> & { provider: { name: string } };

/** Whether a connection cannot be refreshed for this: not where only its API, or another's token, is refused. */
export function keepsFromRefresh({ cause, evidence }: IntegrationFault, connectionId: string): boolean {
  if (cause === 'client_not_allowed') return evidence.connection_id === connectionId;
  return cause !== 'api_disabled';
}

/** The fault that a refused token request shows. `connectionId` says whose refresh it was. */
export function clientFault(
  { error = '', httpStatus }: TokenFault,
  { connectionId, at }: { connectionId: string; at: Date },
): IntegrationFault {
  const cause = Object.hasOwn(causeOfCode, error) ? causeOfCode[error]! : 'client_misconfigured';
  return {
    cause,
    evidence: {
      error,
      ...(httpStatus !== undefined && { http_status: httpStatus }),
      connection_id: connectionId,
    },
    since: at.toISOString(),
    next_step: nextSteps[cause],
  };
}

/** The fault of an API that is switched off. `api` says which: origin and first part of the path. */
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
 * Stores the fault and its event `integration.misconfigured`, unless the integration has this cause already, or a
 * worse one than an API that is switched off; tells if that was news.
 */
export async function noteMisconfigured(
  tx: Queryable,
  { integration, fault }: { integration: Ref; fault: IntegrationFault },
): Promise<boolean> {
  const isProbed = fault.cause !== 'api_disabled';
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
      isProbed ? new Date(Date.parse(fault.since) + firstProbeS * 1000) : null,
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
 * Takes a fault away that the success of one connection disproves, with its event `integration.recovered`. A refresh
 * disproves what was said of the client, unless it was said of another connection's token alone; a call that an API
 * answered disproves that it is switched off.
 */
export async function noteProven(
  tx: Queryable,
  {
    integration,
    ...by
  }: { integration: Ref; at: Date } & (
    | { refreshOf: string; api?: never }
    | { api: string; refreshOf?: never }
  ),
): Promise<boolean> {
  const [cleared] = await tx.query<{ fault: IntegrationFault }>(
    `with known as (
       select id, fault
       from integration
       where id = $1
         and environment_id = $2
         and case fault->>'cause'
           when 'api_disabled' then fault->'evidence'->>'api' = $3
           when 'client_not_allowed' then fault->'evidence'->>'connection_id' = $4
           else fault is not null and $4::text is not null
         end
       for update
     )
     update integration
     set fault = null, probes = 0, probe_at = null
     from known
     where integration.id = known.id
     returning known.fault`,
    [integration.id, integration.environmentId, by.api ?? null, by.refreshOf ?? null],
  );
  if (cleared === undefined) return false;
  const { cause, since } = cleared.fault;
  await queueEvent(tx, {
    environmentId: integration.environmentId,
    type: 'integration.recovered',
    data: { ...integrationEvent(integration), cause, since, recovered_at: by.at.toISOString() },
  });
  return true;
}

/**
 * Whether a refresh may be tried although the client is refused: always where that does not concern the connection,
 * else for one caller at growing intervals from a minute to an hour, on all nodes together.
 */
export async function mayTry(
  db: Queryable,
  {
    integration,
    fault,
    connectionId,
    at,
  }: { integration: Ref; fault: IntegrationFault | undefined; connectionId: string; at: Date },
): Promise<boolean> {
  if (fault === undefined || !keepsFromRefresh(fault, connectionId)) return true;
  return claimProbe(db, { integration, at });
}

/** Whether this is the one to probe now; the next may only after a longer interval than before. */
export async function claimProbe(
  db: Queryable,
  { integration, at }: { integration: Pick<Ref, 'id' | 'environmentId'>; at: Date },
): Promise<boolean> {
  const claimed = await db.query(
    `update integration
     set probes = probes + 1, probe_at = $3::timestamptz + make_interval(secs => least($4 * 2 ^ (probes + 1), $5))
     where id = $1 and environment_id = $2 and probe_at <= $3
     returning id`,
    [integration.id, integration.environmentId, at, firstProbeS, longestProbeS],
  );
  return claimed.length > 0;
}

/** What every event about an integration says of it. */
export function integrationEvent(integration: Ref): Record<string, unknown> {
  return {
    provider_config_key: integration.key,
    provider: integration.provider.name,
    test: integration.isTest,
  };
}

export type DueProbe = Ref & { fault: IntegrationFault };

/** Integrations whose client is to be probed, of all environments, the longest overdue first. */
export async function listDueProbes(
  db: Queryable,
  { at, limit }: { at: Date; limit: number },
): Promise<DueProbe[]> {
  return db.query<DueProbe>(
    `select id, environment_id as "environmentId", key, is_test as "isTest", fault,
       jsonb_build_object('name', provider) as provider
     from integration
     where probe_at <= $1 and fault is not null
     order by probe_at
     limit $2`,
    [at, limit],
  );
}
