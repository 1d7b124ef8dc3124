/**
 * Tests credentials before they are stored.
 *
 * Owns: the call that a provider's definition names for verification, the first token of a client, what either says
 * about the integration's client. Does not own: the consequences, which depend on the source of the credentials: a
 * form (`connect/form.ts`), the provider (`connect/callback.ts`) or an application (`import.ts`).
 */
import { isDeepStrictEqual } from 'node:util';
import {
  type Credentials,
  grantTypeOf,
  isRenewable,
  modeNamed,
  ownClientOf,
  renewalOf,
} from '../auth-modes/modes.ts';
import { verificationRequest } from '../auth-modes/place.ts';
import type { TokenFault } from '../auth-modes/token-fault.ts';
import type { Db, Queryable } from '../db/pool.ts';
import { AppError, type FieldError } from '../errors.ts';
import { clearFault, clientFault, isOfClient, keepsFromRefresh, recordFault } from '../integrations/fault.ts';
import { findIntegration, type Integration, type IntegrationReading } from '../integrations/store.ts';
import type { Logger } from '../log.ts';
import type { Fetch } from '../outbound/outbound.ts';
import { TemplateError } from '../providers/template.ts';
import { provesCredentials } from './health/api-faults.ts';
import { isExpired } from './refresh/refresh-due.ts';
import { requestToken } from './refresh/refresh-request.ts';
import { verificationStatus } from './refresh/verification-status.ts';
import { type ConnectionReader, templateValues } from './store/reader.ts';
import type { GrantFacts } from './store/save.ts';

type Verification =
  /** Without a status if the definition names no call: then nothing speaks against the credentials. */
  | { readonly kind: 'accepted'; readonly status?: number }
  | { readonly kind: 'refused'; readonly status: number }
  /** No response, an outage, a redirect or an unknown path: proves nothing about the credentials. */
  | { readonly kind: 'unproven'; readonly status: number | undefined };

/** Credentials that are to become part of a connection of this integration. */
export type NewCredentials = {
  integration: Integration;
  credentials: Credentials;
  connectionConfig: Record<string, unknown>;
};

const defaultTimeoutMs = 15_000;

/** Calls the provider with the credentials. Throws TemplateError, and AppError if the address is not allowed. */
export async function verify(
  { integration, credentials, connectionConfig }: NewCredentials,
  { fetch, timeoutMs = defaultTimeoutMs }: { fetch: Fetch; timeoutMs?: number },
): Promise<Verification> {
  const values = templateValues({ connectionConfig, integration });
  const { provider: definition, client } = integration;
  const request = verificationRequest({ definition, credentials, values, client });
  if (request === undefined) return { kind: 'accepted' };
  const status = await verificationStatus(request, { fetch, signal: AbortSignal.timeout(timeoutMs) });
  if (status === undefined) return { kind: 'unproven', status };
  if (provesCredentials(status)) return { kind: 'accepted', status };
  // RFC 6750 §3.1: a valid token gets 403 if it lacks a scope, or if the API is disabled.
  const isRefused = status === 401 || (status === 403 && !isRenewable(credentials));
  return { kind: isRefused ? 'refused' : 'unproven', status };
}

/** Nothing proves that the provider accepts the credentials: there was neither a token request nor a successful call. */
export function isUnverified(
  { credentials, isIssued }: Pick<FirstToken & { ok: true }, 'credentials' | 'isIssued'>,
  verification: Verification,
): boolean {
  const isCalled = verification.kind === 'accepted' && verification.status !== undefined;
  return !isIssued && !isCalled && credentials.type !== 'NONE';
}

/** The error for credentials that were not accepted. Has neither the credentials nor the provider's text. */
export function testFailedError(
  { provider: { display_name: provider } }: Integration,
  { kind, status }: Exclude<Verification, { kind: 'accepted' }>,
): AppError {
  const message =
    kind === 'refused'
      ? `${provider} refused these credentials (status ${status}).`
      : status === undefined
        ? `${provider} did not answer when the credentials were tested.`
        : `${provider} answered with status ${status} when the credentials were tested, so their validity is unknown.`;
  const payload = { status: status ?? null, refused: kind === 'refused' };
  return new AppError('connection_test_failed', message, { payload });
}

/**
 * Records what the token endpoint says about the integration's client during a connect or an import: `fault` refuses
 * the client, undefined means that the provider accepts it again. Never throws.
 */
export async function recordClientResult(
  given: { db: Db; reader: Pick<ConnectionReader, 'forgetIntegration'>; log: Logger; now: () => Date },
  { integration, fault }: { integration: Integration; fault: TokenFault | undefined },
): Promise<void> {
  const { db, reader, log, now } = given;
  const at = now();
  const isRefused = fault !== undefined && isOfClient(fault);
  const isAccepted =
    fault === undefined && integration.fault !== undefined && keepsFromRefresh(integration.fault);
  if (!isRefused && !isAccepted) return;
  try {
    const isNews = await db.transaction((tx) =>
      isRefused
        ? recordFault(tx, { integration, fault: clientFault(fault, { at }) })
        : clearFault(tx, { integration, at, proof: 'client' }),
    );
    const { environmentId, key: integrationKey } = integration;
    if (isNews) reader.forgetIntegration({ environmentId, integrationKey });
  } catch (err) {
    log.warn(
      { err, integration: integration.key },
      "the provider's response about the OAuth client could not be recorded",
    );
  }
}

/** Credentials that can be sent to the API, and the facts that the provider returned with them. */
type FirstToken =
  | {
      readonly ok: true;
      readonly credentials: Credentials;
      readonly grant: GrantFacts;
      /** The provider has issued the token in response to a request. */
      readonly isIssued: boolean;
    }
  | { readonly ok: false; readonly fault: TokenFault };

export type FirstTokenDeps = {
  fetch: Fetch;
  now: Date;
  /** Called with the fault for which the provider refused the integration's client; undefined: accepted. */
  onClientResult: (fault: TokenFault | undefined) => Promise<void>;
};

/**
 * Requests a token for credentials that get one without a refresh token, and have none or an expired one. Credentials of
 * all other kinds are returned unchanged. Throws TemplateError, and AppError if the address is not allowed or if there is no client.
 */
export async function firstToken(
  given: NewCredentials,
  { fetch, now, onClientResult }: FirstTokenDeps,
): Promise<FirstToken> {
  const { credentials } = given;
  const account = accountIn(given);
  const hasToken = !isRenewable(credentials) || !isExpired(credentials, now);
  if (hasToken || grantTypeOf(credentials) === 'refresh_token')
    return { ok: true, credentials, grant: { account }, isIssued: false };
  const renewal = renewalOf(credentials);
  const secret = renewal.secretOf(credentials) ?? '';
  const outcome = await requestToken({ ...given, credentials }, { secret, fetch, now });
  if (usesIntegrationClient(credentials)) await onClientResult(outcome.ok ? undefined : outcome.fault);
  if (!outcome.ok) return outcome;
  const { tokens } = outcome;
  const scopesGranted = tokens.scopes && [...tokens.scopes];
  const grant = { account, accessExpiresAt: tokens.expiresAt, scopesGranted };
  return {
    ok: true,
    credentials: renewal.after(tokens, { previous: credentials, secret }),
    grant,
    isIssued: tokens.isUnproven !== true,
  };
}

/** The account, if a setting of the connection names it. */
function accountIn({ integration, connectionConfig }: NewCredentials): GrantFacts['account'] {
  const { account_from: field } = integration.provider;
  const id = field === undefined ? undefined : connectionConfig[field];
  return typeof id === 'string' && id !== '' ? { id } : undefined;
}

function usesIntegrationClient(credentials: Credentials): boolean {
  return grantTypeOf(credentials) === 'client_credentials' && ownClientOf(credentials) === undefined;
}

/** The provider examined the request and refused it, so a repetition would not help. */
export function isDefinitive({ kind }: TokenFault): boolean {
  return kind !== 'transient' && kind !== 'protocol';
}

/** The error for a client that got no token. Has the provider's error code, never its text. */
export function firstTokenFailed(
  { integration, credentials }: Pick<NewCredentials, 'integration' | 'credentials'>,
  fault: TokenFault,
): AppError {
  const { display_name: provider } = integration.provider;
  const payload = {
    status: fault.httpStatus ?? null,
    ...(fault.error !== undefined && { error: fault.error }),
  };
  const said = fault.error === undefined ? '' : ` (${fault.error})`;
  const isOfIntegration = usesIntegrationClient(credentials) || fault.kind === 'client_misconfigured';
  if (isDefinitive(fault) && isOfIntegration) {
    const message = `${provider} refuses the client or a setting of the integration${said}.`;
    return new AppError('integration_misconfigured', message, { status: 400, payload });
  }
  const hasClientForm = Object.hasOwn(modeNamed(credentials.type).form?.fields ?? {}, 'client_secret');
  const refused = hasClientForm ? 'this client ID and secret' : 'these credentials';
  const message = isDefinitive(fault)
    ? `${provider} refused ${refused}${said}.`
    : `${provider} issued no token when the credentials were tested${said}, so their validity is unknown.`;
  return new AppError('connection_test_failed', message, {
    payload: { ...payload, refused: isDefinitive(fault) },
  });
}

/** What the integration refuses about credentials that fit their mode. */
export function credentialFaults(credentials: Credentials, integration: Integration): FieldError[] {
  const faults = modeNamed(credentials.type).credentialFaults?.(credentials, integration.provider) ?? [];
  return [
    ...missingClient(credentials, integration),
    ...faults.map((fault) => ({ code: 'custom', ...fault })),
  ];
}

/** The missing fields of credentials without a client, if the integration has no client either. */
function missingClient(credentials: Credentials, { client }: Pick<Integration, 'client'>): FieldError[] {
  const mode = modeNamed(credentials.type);
  if (mode.client !== 'optional' || (ownClientOf(credentials) ?? client) !== undefined) return [];
  const error = { code: 'custom', message: 'is required' };
  return Object.entries(mode.form?.fields ?? {})
    .filter(([, { required }]) => required)
    .map(([name]) => ({ ...error, path: [name] }));
}

/** Converts the error of a placeholder that cannot be filled to an error for callers; returns other errors unchanged. */
export function asAppError(error: unknown): unknown {
  if (!(error instanceof TemplateError)) return error;
  const message = `A setting of the integration is not valid: ${error.message}.`;
  return new AppError('integration_misconfigured', message, { status: 400, cause: error });
}

/**
 * Throws `unknown_provider_config` if the integration was replaced or its settings were changed since the credentials
 * were tested: new settings could send the credentials to another provider.
 *
 * Call it in the transaction that stores the connection, after that write: a later change of the integration waits
 * for this transaction (`getIntegrationForUpdate`) and finds the connection.
 */
export async function assertIntegrationUnchanged(
  tx: Queryable,
  { integration, reading }: { integration: Integration; reading: IntegrationReading },
): Promise<void> {
  const { environmentId, key } = integration;
  const found = await findIntegration(tx, { environmentId, key, ...reading });
  const isSame = found?.id === integration.id && found.isTest === integration.isTest;
  if (isSame && isDeepStrictEqual(found.integrationConfig, integration.integrationConfig)) return;
  const message = `The integration "${key}" was changed while the credentials were tested. Try again.`;
  throw new AppError('unknown_provider_config', message);
}
