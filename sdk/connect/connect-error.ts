/** The reasons for which an attempt to connect an account ends without a connection. */
export type ConnectErrorCode =
  /** The user closed the window or the frame. */
  | 'window_closed'
  /** The provider reports that access was denied. */
  | 'denied'
  /** The attempt failed for another reason; `reason` has its code. */
  | 'failed'
  /** The user returned from the connect page without a connection. */
  | 'abandoned'
  /** The browser opened no window: call `connect` in the click handler, or use a frame or a redirect. */
  | 'popup_blocked'
  /** The frame stayed empty: TRELLIS_CONNECT_FRAME_ANCESTORS of the service must contain the origin of this page. */
  | 'frame_blocked'
  /** The session has expired, and no attempt is in progress. */
  | 'session_expired'
  /** The service has no session with this token. */
  | 'invalid_token'
  /** The application returned no token of a session; `reason` says what it returned. */
  | 'no_token';

const messages: Record<ConnectErrorCode, string> = {
  window_closed: 'The window was closed before an account was connected.',
  denied: 'Access was denied.',
  failed: 'The account could not be connected.',
  abandoned: 'No account was connected.',
  popup_blocked:
    'The browser blocked the window. Call connect in the click handler, or use a frame or a redirect.',
  frame_blocked:
    'The connect page did not load in the frame. Check that TRELLIS_CONNECT_FRAME_ANCESTORS contains the origin of this page, and that `url` is the address of the service.',
  session_expired: 'The connect session has expired. Create a new session.',
  invalid_token: 'The connect session is unknown: the token is wrong, or the session was deleted.',
  no_token: 'The application returned no token of a connect session.',
};

/** The error that `connect` rejects with, except for an abort and for an error of your `token` function. */
export class ConnectError extends Error {
  declare readonly name: 'ConnectError';
  readonly code: ConnectErrorCode;
  /** The cause that the service reports for the last failure, such as `blocked_by_admin` or `another_account`. */
  readonly reason: string | undefined;

  static {
    Object.assign(ConnectError.prototype, { name: 'ConnectError' });
  }

  constructor(
    code: ConnectErrorCode,
    { reason, cause }: { reason?: string | undefined; cause?: unknown } = {},
  ) {
    const message = messages[code];
    const hasReason = reason !== undefined && code !== 'denied';
    super(hasReason ? `${message} (${reason})` : message, cause === undefined ? undefined : { cause });
    this.code = code;
    this.reason = reason;
  }
}

/** Whether `error` is a `ConnectError` and, if codes are given, has one of them. */
export function isConnectError(error: unknown, ...codes: readonly ConnectErrorCode[]): error is ConnectError {
  // Compares the name, because a page may load two copies of this package.
  if (!(error instanceof Error) || error.name !== 'ConnectError') return false;
  return codes.length === 0 || codes.includes((error as ConnectError).code);
}
