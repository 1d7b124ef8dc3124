import type { TokenFault } from '../auth-modes/token-fault.ts';
import { type Evidence, evidenceOf } from '../connections/health.ts';
import type { Queryable } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { EventType } from '../events/catalogue.ts';
import { queueEvent } from '../events/outbox.ts';
import { ConnectFault, otherBrowserType } from './fault.ts';
import type { SessionSettings } from './sessions.ts';

/** What the application is told of trips that made no connection: once for each, with a cause and what to do. */
export type ConnectFailure = { cause: ConnectCause; evidence: Evidence };

export type ConnectCause =
  | 'access_denied'
  | 'blocked_by_admin'
  | 'client_refused'
  | 'code_refused'
  | 'credentials_refused'
  | 'provider_not_answering'
  | 'unexpected_answer'
  | 'another_account'
  | 'account_unknown'
  | 'another_browser'
  | 'not_completed'
  | 'cut_off'
  | 'nothing_came_back';

export const nextSteps: Record<ConnectCause, string> = {
  access_denied: 'The user did not allow access. Say what it is needed for before you ask again.',
  blocked_by_admin:
    "An administrator of the user's account does not allow the application. The user has to ask for it.",
  client_refused:
    "The provider refuses the client ID, its secret, its redirect address or its scopes: the integration's, unless the user brought a client along. Compare them with the provider's console.",
  code_refused: 'The user took too long, or loaded the page twice. A new link helps.',
  credentials_refused:
    "The provider gave a token, and its API refused it. Look at `evidence.http_status` and at the account's state with the provider.",
  provider_not_answering:
    'The provider could not complete it at the moment. A new link helps a little later.',
  unexpected_answer:
    "The provider's answer does not keep to the protocol, or came from somewhere else. Nothing was accepted.",
  another_account: 'The user chose another account than the one that is expected.',
  account_unknown:
    'The provider did not say which account it is. Ask for scopes that tell, such as openid and email.',
  another_browser:
    'The answer came to a browser that did not begin, or that takes no cookies. Open the link in the browser in which it is to be completed, at the address of this service.',
  not_completed:
    'The user came back, and the connection could not be made: the evidence names the error, the log of the service says more.',
  cut_off:
    'The user came back, and the service was stopped before the connection was made. A new link helps.',
  nothing_came_back:
    'The user went to the provider and did not come back: gave up, or was stopped by an error page of the provider (redirect address not registered, application under test or not allowed by the organization, client deleted, too many sign-ins). Open the link yourself to see it.',
};

const causes: Record<TokenFault['kind'], ConnectCause> = {
  denied: 'access_denied',
  blocked_by_admin: 'blocked_by_admin',
  client_misconfigured: 'client_refused',
  dead_grant: 'code_refused',
  session_policy: 'code_refused',
  transient: 'provider_not_answering',
  protocol: 'unexpected_answer',
};

/** What a failed trip tells the application. */
export function failureOf(error: unknown): ConnectFailure {
  if (error instanceof ConnectFault && error.fault !== undefined) {
    return { cause: causes[error.fault.kind], evidence: evidenceOf(error.fault) };
  }
  if (error instanceof ConnectFault && error.explanation.type === otherBrowserType) {
    return { cause: 'another_browser', evidence: {} };
  }
  if (!(error instanceof AppError)) return { cause: 'not_completed', evidence: {} };
  if (error.code === 'another_account') return { cause: 'another_account', evidence: {} };
  if (error.code === 'connection_validation_failed') {
    // By the application's own code, which says so, or because the account cannot be told.
    if (error.payload !== undefined) return { cause: 'not_completed', evidence: { error: error.code } };
    return { cause: 'account_unknown', evidence: {} };
  }
  if (error.code === 'connection_test_failed') {
    const { status } = error.payload as { status: number };
    return { cause: 'credentials_refused', evidence: { http_status: status } };
  }
  return { cause: 'not_completed', evidence: { error: error.code } };
}

/** Whom a trip was for. */
export type FlowFacts = {
  environmentId: number;
  settings: SessionSettings;
  integration: { key: string; providerName: string; isTest: boolean };
  begunAt: Date;
};

/** Raises the event of a trip that failed, or of one that never came back. */
export async function queueFailure(
  tx: Queryable,
  type: Extract<EventType, 'connection.connect_failed' | 'connection.connect_abandoned'>,
  {
    environmentId,
    settings,
    integration,
    begunAt,
    cause,
    evidence,
  }: FlowFacts & { cause: ConnectCause; evidence: Evidence },
): Promise<void> {
  await queueEvent(tx, {
    environmentId,
    type,
    data: {
      connection_id: settings.reconnect?.connection ?? null,
      provider_config_key: integration.key,
      provider: integration.providerName,
      test: integration.isTest,
      tags: settings.tags ?? {},
      end_user: settings.end_user ? { id: settings.end_user.id } : null,
      cause,
      evidence,
      begun_at: begunAt.toISOString(),
      next_step: nextSteps[cause],
    },
  });
}
