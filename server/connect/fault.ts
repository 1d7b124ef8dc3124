import type { TokenFault } from '../auth-modes/token-fault.ts';
import { AppError, type ErrorCode } from '../errors.ts';

/** What a page tells a person: what happened, and what to do. */
export type Explanation = {
  /** For the application's program: the `errorType` of the callback page. */
  type: string;
  title: string;
  message: string;
  nextStep: string;
  /** What the provider said, as it said it. Untrusted. */
  evidence?: string | undefined;
};

/** A step of the dance that failed, in words for the person who was dancing. */
export class ConnectFault extends Error {
  readonly explanation: Explanation;
  /** What the provider reported, where that is what failed. */
  readonly fault: TokenFault | undefined;
  constructor({ cause, fault, ...explanation }: Explanation & { cause?: unknown; fault?: TokenFault }) {
    super(explanation.message, { cause });
    this.name = 'ConnectFault';
    this.explanation = explanation;
    this.fault = fault;
  }
}

const startAgain = 'Close this window and start again from the application.';
const tellMakers = 'Tell the people who run the application what this page says.';

/** A callback whose state is not one that is waited for. */
export function unknownState(): ConnectFault {
  return new ConnectFault({
    type: 'state_err',
    title: 'This answer is no longer waited for',
    message: 'It was used already, or more than 30 minutes have passed since you began.',
    nextStep: startAgain,
  });
}

/** What is told of a fault of ours. */
export const unexpected: Omit<Explanation, 'evidence'> = {
  type: 'unknown_err',
  title: 'Something went wrong here',
  message: 'Nothing was connected. The fault is not yours.',
  nextStep:
    'Start again from the application. If it happens again, tell the people who run it what stands below.',
};

/** The type of the fault that `foreignBrowser` makes. */
export const otherBrowserType = 'state_cookie_err';

/** A callback in a browser that did not begin it. */
export function foreignBrowser(baseUrl: string): ConnectFault {
  return new ConnectFault({
    type: otherBrowserType,
    title: 'This was begun in another browser',
    message: `The browser that opens this page must be the one that began, it must accept cookies, and it must have begun at ${baseUrl}.`,
    nextStep: startAgain,
  });
}

/** What a fault at the provider means to the person who is connecting. */
export function providerFault(fault: TokenFault, provider: string): ConnectFault {
  const said = [fault.error, fault.subtype, fault.description].filter((part) => part !== undefined);
  const evidence = said.length > 0 ? said.join(': ') : undefined;
  return new ConnectFault({ ...explain(fault, provider), evidence, fault });
}

/** The same where the person brought the client along. */
export function ownClientFault(fault: TokenFault, provider: string): ConnectFault {
  if (fault.kind !== 'client_misconfigured') return providerFault(fault, provider);
  return new ConnectFault({
    type: 'provider_config_err',
    title: 'The client ID and secret were not accepted',
    message: `${provider} does not accept the client that was given for this connection. Nothing was connected.`,
    nextStep: 'Start again from the application, with a client ID and a secret that work.',
    evidence: fault.error,
    fault,
  });
}

function explain(fault: TokenFault, provider: string): Omit<Explanation, 'evidence'> {
  switch (fault.kind) {
    case 'denied':
      return {
        type: 'callback_err',
        title: 'Access was not given',
        message: `${provider} reports that access was declined. Nothing was connected.`,
        nextStep:
          'If that was not what you wanted, close this window, start again, and choose to allow access.',
      };
    case 'blocked_by_admin':
      return {
        type: 'callback_err',
        title: 'Your organization does not allow this application',
        message: `${provider} refuses because of a rule that an administrator of your account has set.`,
        nextStep: 'Ask your administrator to allow the application, then start again.',
      };
    case 'client_misconfigured':
      return {
        type: 'provider_config_err',
        title: 'The application is not set up correctly',
        message: `${provider} does not accept the application's own credentials or settings. Your account is not the cause.`,
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
        title: `${provider} is not answering`,
        message:
          'You gave access, but the provider could not complete it at the moment. Nothing was connected.',
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
      title: 'The answer came from somewhere else',
      message: `The answer says that it is not from ${provider}, so nothing was accepted.`,
      nextStep: `${startAgain} If it happens again, tell the people who run the application.`,
    };
  }
  return {
    type: fault.httpStatus === undefined ? 'callback_err' : 'token_err',
    title: `${provider} gave an unexpected answer`,
    message: 'Nothing was connected.',
    nextStep: `${startAgain} If it happens again, tell the people who run the application what stands below.`,
  };
}

type Words = { title: string; message?: string; nextStep?: string };

/** Where the catalogue's sentence speaks to a programmer, the page has one of its own. */
const wordsFor: Partial<Record<ErrorCode, Words>> = {
  another_account: {
    title: 'That is another account',
    nextStep: 'Start again and choose the account that is expected.',
  },
  unknown_connect_session_token: {
    title: 'This link is used up or has expired',
    message: 'A link is good for 30 minutes and for one connection.',
    nextStep: 'Go back to the application and ask for a new one.',
  },
  session_in_other_browser: {
    title: 'This link is in use in another browser',
    message: 'Connecting was begun with it in another browser, and it works in that one alone.',
    nextStep: 'Go on there, or ask the application for a new link.',
  },
  invalid_connect_session_token_format: {
    title: 'This link is not complete',
    message: 'A part of it is missing. It may have been cut off when it was copied.',
    nextStep: 'Open it again exactly as the application gave it to you.',
  },
  connection_test_failed: {
    title: 'The provider does not accept this account here',
    nextStep: `${startAgain} If it happens again, tell the people who run the application what this page says.`,
  },
  connection_validation_failed: { title: 'The account was not accepted', nextStep: startAgain },
  unknown_connection: {
    title: 'This connection no longer exists',
    nextStep: 'Connect the account again from the application.',
  },
  integration_not_allowed: { title: 'This link is for something else' },
  unknown_provider_config: {
    title: 'There is nothing to connect by this name',
    message: 'The application has removed it, or the link was changed.',
  },
  invalid_auth_mode: { title: 'This is connected in another way' },
  integration_misconfigured: { title: 'The application is not set up correctly' },
  test_credentials_unavailable: { title: 'The test provider is switched off' },
  invalid_query_params: { title: 'Something in the link does not fit' },
};

/** An error of our interface in the words of a page; undefined for one that nobody may see. */
export function explainError(error: unknown): Explanation | undefined {
  if (error instanceof ConnectFault) return error.explanation;
  if (!(error instanceof AppError) || error.code === 'internal') return undefined;
  const {
    title = 'This did not work',
    message,
    nextStep = tellMakers,
  }: Partial<Words> = wordsFor[error.code] ?? {};
  const fields = error.errors?.map((fault) => `${fault.path.join('.')}: ${fault.message}`).join('; ');
  return { type: error.code, title, message: message ?? fields ?? error.message, nextStep };
}
