/**
 * The reports of an authorization: the explanation on a page for the end user, the event for the application, the line
 * of the activity log.
 */
import type { Operation } from '../activity/operations.ts';
import type { TokenFault } from '../auth-modes/token-fault.ts';
import { evidenceOf } from '../connections/health/health.ts';
import type { Evidence } from '../connections/store/store.ts';
import type { Queryable } from '../db/pool.ts';
import { AppError, type ErrorCode, type FieldError } from '../errors.ts';
import type { EventType } from '../events/event-types.ts';
import { queueEvent } from '../events/outbox.ts';
import type { Integration, OAuthClient } from '../integrations/store.ts';
import type { Logger } from '../log.ts';
import { type SessionSettings, storeFailure } from './sessions.ts';

/** An explanation for the end user, with a next step. */
export type Explanation = {
  /** For programs: the `errorType` of the callback page. */
  type: string;
  title: string;
  message: string;
  nextStep: string;
  /** The provider's own text. Untrusted. */
  evidence?: string | undefined;
  /** The fields that are refused. */
  errors?: FieldError[] | undefined;
};

/** A failed step of an authorization, with the explanation for the end user. */
export class ConnectFault extends Error {
  readonly explanation: Explanation;
  /** The fault that the provider reported, if that is the cause. */
  readonly fault: TokenFault | undefined;
  constructor({ cause, fault, ...explanation }: Explanation & { cause?: unknown; fault?: TokenFault }) {
    super(explanation.message, { cause });
    this.name = 'ConnectFault';
    this.explanation = explanation;
    this.fault = fault;
  }
}

const startAgain = 'Close this window and start again from the application.';
const tellMakers = 'Send the text of this page to the support of the application.';

/** A callback whose state belongs to no pending authorization. */
export function unknownState(): ConnectFault {
  return new ConnectFault({
    type: 'state_err',
    title: 'This sign-in link has expired',
    message: 'The link was already used, or more than 30 minutes have passed since you started.',
    nextStep: startAgain,
  });
}

/** The explanation of an internal error. */
export const unexpected: Omit<Explanation, 'evidence'> = {
  type: 'unknown_err',
  title: 'An error occurred',
  message: 'No account was connected. You did not cause this error.',
  nextStep:
    'Start again from the application. If the error occurs again, send the text below to the support of the application.',
};

/** The type of the fault that `foreignBrowser` returns. */
const otherBrowserType = 'state_cookie_err';

/** A callback in a browser that did not begin the authorization. */
export function foreignBrowser(baseUrl: string): ConnectFault {
  return new ConnectFault({
    type: otherBrowserType,
    title: 'This sign-in was started in another browser',
    message: `Open this page in the browser in which you started, at ${baseUrl}, and allow cookies.`,
    nextStep: startAgain,
  });
}

/** The explanation of a fault that the provider reported. */
export function providerFault(fault: TokenFault, provider: string): ConnectFault {
  const said = [fault.error, fault.subtype, fault.description].filter((part) => part !== undefined);
  const evidence = said.length > 0 ? said.join(': ') : undefined;
  return new ConnectFault({ ...explain(fault, provider), evidence, fault });
}

/** The same for an OAuth client that the end user provided. */
export function ownClientFault(fault: TokenFault, provider: string): ConnectFault {
  if (fault.kind !== 'client_misconfigured') return providerFault(fault, provider);
  return new ConnectFault({
    type: 'provider_config_err',
    title: 'The client ID and secret were not accepted',
    message: `${provider} does not accept the client of this connection. No account was connected.`,
    nextStep: 'Start again from the application, with a valid client ID and client secret.',
    evidence: fault.error,
    fault,
  });
}

/**
 * Logs a fault that the provider reported, and returns its explanation. The log has the provider's code, and never its
 * text, which may contain anything. A refusal by the user is no warning.
 */
export function loggedFault(
  { log }: { log: Logger },
  given: {
    integration: Integration;
    ownClient?: OAuthClient | undefined;
    fault: TokenFault;
    step: 'begin' | 'callback' | 'exchange' | 'account';
  },
): ConnectFault {
  const { integration, ownClient, fault, step } = given;
  const { kind, error, httpStatus: status } = fault;
  const facts = { integration: integration.key, step, kind, fault: error, status };
  if (kind === 'denied') log.info(facts, 'access was denied');
  else log.warn(facts, 'an authorization failed');
  const { display_name: provider } = integration.provider;
  return ownClient ? ownClientFault(fault, provider) : providerFault(fault, provider);
}

function explain(fault: TokenFault, provider: string): Omit<Explanation, 'evidence'> {
  switch (fault.kind) {
    case 'denied':
      return {
        type: 'callback_err',
        title: 'Access was denied',
        message: `${provider} reports that access was denied. No account was connected.`,
        nextStep: 'If this was a mistake, close this window, start again, and allow access.',
      };
    case 'blocked_by_admin':
      return {
        type: 'callback_err',
        title: 'Your organization does not allow this application',
        message: `${provider} denies access because of a policy of your administrator.`,
        nextStep: 'Ask your administrator to allow the application, then start again.',
      };
    case 'client_misconfigured':
      return {
        type: 'provider_config_err',
        title: 'The application is not set up correctly',
        message: `${provider} does not accept the credentials or settings of the application. Your account is not the cause.`,
        nextStep: tellMakers,
      };
    case 'dead_grant':
    case 'session_policy':
      return {
        type: 'token_err',
        title: `${provider} no longer accepts this sign-in`,
        message: 'Too much time has passed, or the page was loaded twice.',
        nextStep: startAgain,
      };
    case 'transient':
      return {
        type: 'token_err',
        title: `${provider} does not respond`,
        message: 'The connection failed. No account was connected.',
        nextStep: 'Wait a minute, then start again from the application.',
      };
    case 'protocol':
      return protocol(fault, provider);
  }
}

function protocol(fault: TokenFault, provider: string): Omit<Explanation, 'evidence'> {
  if (fault.error === 'iss_mismatch') {
    return {
      type: 'callback_err',
      title: 'The response is not from the provider',
      message: `The response is not from ${provider}, so it was rejected. No account was connected.`,
      nextStep: `${startAgain} If the error occurs again, contact the support of the application.`,
    };
  }
  return {
    type: fault.httpStatus === undefined ? 'callback_err' : 'token_err',
    title: `${provider} sent an unexpected response`,
    message: 'No account was connected.',
    nextStep: `${startAgain} If the error occurs again, send the text below to the support of the application.`,
  };
}

type Words = { title: string; message?: string; nextStep?: string };

/** Texts for end users in place of the catalogue's, which are for developers. */
const wordsFor: Partial<Record<ErrorCode, Words>> = {
  another_account: {
    title: 'This is another account',
    nextStep: 'Start again and choose the expected account.',
  },
  unknown_connect_session_token: {
    title: 'This link has expired or was already used',
    message: 'A link is valid for 30 minutes and for one connection.',
    nextStep: 'Go back to the application and request a new link.',
  },
  session_in_other_browser: {
    title: 'This link is in use in another browser',
    message: 'The link was opened in another browser, and it works only in that browser.',
    nextStep: 'Continue in the other browser, or request a new link from the application.',
  },
  invalid_connect_session_token_format: {
    title: 'This link is incomplete',
    message: 'A part of the link is missing. It may have been truncated when it was copied.',
    nextStep: 'Open it exactly as you received it from the application.',
  },
  connection_test_failed: {
    title: 'The provider does not accept this account',
    nextStep: `${startAgain} If the error occurs again, send the text of this page to the support of the application.`,
  },
  connection_validation_failed: { title: 'The account was not accepted', nextStep: startAgain },
  unknown_connection: {
    title: 'This connection no longer exists',
    nextStep: 'Connect the account again from the application.',
  },
  integration_not_allowed: { title: 'This link is for another integration' },
  unknown_provider_config: {
    title: 'This integration does not exist',
    message: 'The application has removed the integration, or the link was changed.',
  },
  invalid_auth_mode: { title: 'This integration uses another sign-in method' },
  integration_misconfigured: { title: 'The application is not set up correctly' },
  test_credentials_unavailable: { title: 'The test provider is disabled' },
  invalid_query_params: { title: 'This link is not valid' },
};

/** The explanation of an error; undefined for an internal error, which is not shown. */
export function explainError(error: unknown): Explanation | undefined {
  if (error instanceof ConnectFault) return error.explanation;
  if (!(error instanceof AppError) || error.code === 'internal') return undefined;
  const {
    title = 'The connection failed',
    message,
    nextStep = tellMakers,
  }: Partial<Words> = wordsFor[error.code] ?? {};
  const fields = error.errors?.map((fault) => `${fault.path.join('.')}: ${fault.message}`).join('; ');
  const { errors } = error;
  return { type: error.code, title, message: message ?? fields ?? error.message, nextStep, errors };
}

/** A failed authorization as the application receives it: once for each, with a cause and a next step. */
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

const nextSteps: Record<ConnectCause, string> = {
  access_denied:
    'The user did not allow access. Explain why the access is needed before you request it again.',
  blocked_by_admin:
    "The administrator of the user's account does not allow the application. The user must ask the administrator to allow it.",
  client_refused:
    "The provider rejects the client ID, the client secret, the redirect URI or the scopes of the integration, or of the user's own client. Compare them with the provider's console.",
  code_refused: 'The sign-in expired, or the page was loaded twice. Send the user a new link.',
  credentials_refused:
    'The provider issued a token, and its API rejected it. Check `evidence.http_status` and the state of the account at the provider.',
  provider_not_answering:
    'The provider could not complete the authorization. Send the user a new link later.',
  unexpected_answer:
    "The provider's response violates the protocol, or was sent by another server, so it was rejected. Try again; if it happens again, compare the integration's settings with the provider's console.",
  another_account:
    'The user chose a different account than expected. Ask the user to connect again with the expected account.',
  account_unknown:
    'The provider did not return the account. Request scopes that identify it, such as openid and email.',
  another_browser:
    'The authorization was completed in another browser than it was started in, or the browser does not accept cookies. Open the link in the browser in which the user signs in, at the address of this service.',
  not_completed:
    'The user returned, but the connection could not be created. The evidence contains the error; see the log of the service for details.',
  cut_off:
    'The user returned, but the service stopped before the connection was created. Send the user a new link.',
  nothing_came_back:
    'The user was sent to the provider and did not return: the user gave up, or the provider showed an error page (redirect URI not registered, application in testing or not allowed by the organization, client deleted, too many sign-ins). Open the link yourself to check for an error page.',
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

/** The cause of a failed authorization, for the application. */
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
    // A payload is that of the application's own code; without one the account is not known.
    if (error.payload !== undefined) return { cause: 'not_completed', evidence: { error: error.code } };
    return { cause: 'account_unknown', evidence: {} };
  }
  if (error.code === 'connection_test_failed') {
    const { status } = error.payload as { status: number };
    return { cause: 'credentials_refused', evidence: { http_status: status } };
  }
  return { cause: 'not_completed', evidence: { error: error.code } };
}

/** The session and the integration of an authorization. */
export type FlowFacts = {
  environmentId: number;
  settings: SessionSettings;
  integration: { key: string; providerName: string; isTest: boolean };
  begunAt: Date;
};

/** Stores a failure in its session and queues its event. Returns the line of the activity log. */
export async function recordFailure(
  tx: Queryable,
  { error, at, sessionId, ...facts }: FlowFacts & { sessionId: number; error: unknown; at: Date },
): Promise<Operation> {
  const flow = { ...facts, ...failureOf(error) };
  const { cause, evidence } = flow;
  const { type } = explainError(error) ?? unexpected;
  await storeFailure(tx, { id: sessionId, failure: { cause, type, evidence, at: at.toISOString() } });
  await queueFailure(tx, 'connection.connect_failed', flow);
  return flowFailed(flow, at);
}

/** Queues the event of an authorization that failed, or from which the user never returned. */
export async function queueFailure(
  tx: Queryable,
  type: Extract<EventType, 'connection.connect_failed' | 'connection.connect_abandoned'>,
  given: FlowFacts & { cause: ConnectCause; evidence: Evidence },
): Promise<void> {
  const { environmentId, settings, integration, begunAt, cause, evidence } = given;
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

/** The line of an authorization that created or renewed a connection. */
export function flowEnded(
  given: { connection: { integrationKey: string; connectionId: string }; missingScopes: readonly string[] },
  { attempt, at }: { attempt: { environmentId: number; sessionId: number; begunAt: Date }; at: Date },
): Operation {
  const { connection, missingScopes } = given;
  const message = 'not all scopes were granted';
  const details = { missing: missingScopes.join(' ') };
  return {
    type: 'connect',
    status: 'success',
    environmentId: attempt.environmentId,
    integration: connection.integrationKey,
    connection: connection.connectionId,
    actor: `session:${attempt.sessionId}`,
    durationMs: at.getTime() - attempt.begunAt.getTime(),
    messages: missingScopes.length === 0 ? [] : [{ level: 'warn', message, details }],
  };
}

/** The line of an authorization that failed. */
export function flowFailed(
  { environmentId, settings, integration, begunAt, cause, evidence }: FlowFacts & ConnectFailure,
  at: Date,
): Operation {
  return {
    type: 'connect',
    status: 'failed',
    environmentId,
    integration: integration.key,
    connection: settings.reconnect?.connection,
    durationMs: at.getTime() - begunAt.getTime(),
    errorCode: cause,
    messages: [{ level: 'error', message: nextSteps[cause], details: evidence }],
  };
}
