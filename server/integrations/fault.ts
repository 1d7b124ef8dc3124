import type { TokenFault } from '../auth-modes/token-fault.ts';
import type { Queryable } from '../db/pool.ts';
import type { IntegrationSubject } from '../events/event-type.ts';
import { queueEvent } from '../events/outbox.ts';
import type { Integration } from './store.ts';

/**
 * What ails an integration as a whole: the provider refuses our client, or its API is switched off. No connection
 * changes its state for that: there is nothing its user could do.
 *
 * Owns: these causes, the column `fault` and its events. Does not own: when a refused client is tried again
 * (`probes.ts`), which connections are held back where the client may not use their tokens alone
 * (`connections/suspension.ts`), faults of a connection (`connections/health.ts`).
 */
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
    "The provider does not know the client ID or refuses the client secret. Check both in the provider's console and set them again.",
  client_deleted:
    "The OAuth client was deleted in the provider's console. Restore it there, or set up another; connections of the old one must connect again.",
  client_misconfigured:
    "The provider refuses a setting of the integration. Compare its settings with those in the provider's console.",
  client_not_allowed:
    "The provider does not let the client use a connection's token, or ask for one: it was given to another client, the client may not refresh, or the account does not admit it. Check the client and the connection's settings; a connection that was imported, or made with another client, must connect again. It is tried again every hour.",
  api_disabled:
    "The API is not enabled in the client's project. Enable it in the provider's console, then wait a few minutes.",
};

/** Codes that speak of the client itself, whatever the provider; its definition may name more. */
const causeOfCode: Readonly<Record<string, IntegrationCause>> = {
  invalid_client: 'client_refused',
  deleted_client: 'client_deleted',
};

/** How long after a fault is found the first probe may go. */
export const firstProbeS = 60;

/** What is known of an integration wherever something is written about it. */
export type IntegrationRef = Pick<Integration, 'id' | 'environmentId' | 'key' | 'isTest'> & {
  provider: { name: string };
};

/** Whether connections cannot be refreshed for this: all or none, and all unless only an API is switched off. */
export function keepsFromRefresh({ cause }: Pick<IntegrationFault, 'cause'>): boolean {
  return cause !== 'api_disabled';
}

/** Whether a token request was refused for one connection, which the client may not use or act for; RFC 6749 §5.2. */
export function isOfOneGrant({ kind, error, isOfOneGrant: isOfOne }: TokenFault): boolean {
  return kind === 'client_misconfigured' && (isOfOne === true || error === 'unauthorized_client');
}

/** Whether it is the client itself that was refused, and not a setting, a scope or the one code. */
export function isOfClient({ kind, error = '', isOfClient: isNamed }: TokenFault): boolean {
  return kind === 'client_misconfigured' && (isNamed === true || Object.hasOwn(causeOfCode, error));
}

/** The fault that a refused token request shows. `connectionId` says whose refresh it was, where it was one. */
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
 * Takes a fault away that is disproved, with its event `integration.recovered`. A token request in which the provider
 * took the client disproves what was said of the client, a call that an API answered that it is switched off.
 */
export async function noteProven(
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

/** What every event about an integration says of it. */
export function integrationEvent(integration: IntegrationRef): IntegrationSubject {
  return {
    provider_config_key: integration.key,
    provider: integration.provider.name,
    test: integration.isTest,
  };
}
