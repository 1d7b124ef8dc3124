/** How connecting an account may end without a connection. */
export type ConnectErrorCode =
  /** The window or the frame was closed. */
  | 'window_closed'
  /** The person, or the provider in their name, did not allow access. */
  | 'denied'
  /** Something else went wrong on the way; `reason` says what. */
  | 'failed'
  /** The person came back from the connect page without a connection. */
  | 'abandoned'
  /** The browser opened no window: call `connect` in the click itself, or use a frame or a redirect. */
  | 'popup_blocked'
  /** The frame stayed empty: the service has to name this page in TRELLIS_CONNECT_FRAME_ANCESTORS. */
  | 'frame_blocked'
  /** The session is over, and nobody is under way with it. */
  | 'session_expired'
  /** The service knows no session by this token. */
  | 'invalid_token';

const words: Record<ConnectErrorCode, string> = {
  window_closed: 'The window was closed before an account was connected.',
  denied: 'Access was not given.',
  failed: 'The account could not be connected.',
  abandoned: 'No account was connected.',
  popup_blocked:
    'The browser blocked the window. Call connect in the click itself, or use a frame or a redirect.',
  frame_blocked:
    'The connect page did not load in the frame. Is this origin named in TRELLIS_CONNECT_FRAME_ANCESTORS, and `url` the address of the service?',
  session_expired: 'The connect session has expired. Create another.',
  invalid_token: 'The connect session is unknown: the token is wrong, or the session was deleted.',
};

/** What `connect` rejects with, but for an abort and for what your own `token` function throws. */
export class ConnectError extends Error {
  declare readonly name: 'ConnectError';
  readonly code: ConnectErrorCode;
  /** In the words of the service, such as `blocked_by_admin` or `another_account`: what went wrong last. */
  readonly reason: string | undefined;

  static {
    Object.assign(ConnectError.prototype, { name: 'ConnectError' });
  }

  constructor(
    code: ConnectErrorCode,
    { reason, cause }: { reason?: string | undefined; cause?: unknown } = {},
  ) {
    const said = reason === undefined || code === 'denied' ? words[code] : `${words[code]} (${reason})`;
    super(said, cause === undefined ? undefined : { cause });
    this.code = code;
    this.reason = reason;
  }
}

/** Whether it is an error of connecting, and where codes are named, one of these. */
export function isConnectError(error: unknown, ...codes: readonly ConnectErrorCode[]): error is ConnectError {
  // By its name: a page may hold two copies of this package.
  if (!(error instanceof Error) || error.name !== 'ConnectError') return false;
  return codes.length === 0 || codes.includes((error as ConnectError).code);
}
