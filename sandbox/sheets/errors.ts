/**
 * Errors in the format of Google's API gateway and of the Sheets service.
 */

/** An error response: `{"error": {code, message, status, details?}}`. */
export class GoogleError extends Error {
  readonly code: number;
  readonly status: string;
  readonly details: readonly object[];
  /** Additional headers of the response, such as WWW-Authenticate. */
  readonly headers: Readonly<Record<string, string>>;

  constructor(init: {
    code: number;
    status: string;
    message: string;
    details?: readonly object[];
    headers?: Readonly<Record<string, string>>;
  }) {
    super(init.message);
    this.code = init.code;
    this.status = init.status;
    this.details = init.details ?? [];
    this.headers = init.headers ?? {};
  }

  toJson(): object {
    const { code, message, status, details } = this;
    return { error: { code, message, status, ...(details.length > 0 && { details }) } };
  }
}

/** 400 INVALID_ARGUMENT: the request can never succeed. */
export function invalidArgument(message: string): GoogleError {
  return new GoogleError({ code: 400, status: 'INVALID_ARGUMENT', message });
}

/** An error in a request. `field` is a proto path in snake_case, absent for the request itself. */
export interface FieldViolation {
  field?: string;
  description: string;
}

/** 400 with one line and one `fieldViolations` entry for each error found while transcoding. */
export function badRequest(violations: readonly FieldViolation[]): GoogleError {
  return new GoogleError({
    code: 400,
    status: 'INVALID_ARGUMENT',
    message: violations.map((violation) => violation.description).join('\n'),
    details: [{ '@type': 'type.googleapis.com/google.rpc.BadRequest', fieldViolations: violations }],
  });
}

/** 400 for a `fields` parameter with a field that the response does not have. */
export function badFields(violations: readonly FieldViolation[]): GoogleError {
  return new GoogleError({
    code: 400,
    status: 'INVALID_ARGUMENT',
    message: 'Request contains an invalid argument.',
    details: [{ '@type': 'type.googleapis.com/google.rpc.BadRequest', fieldViolations: violations }],
  });
}

/** 404: no such spreadsheet, or a spreadsheet that is hidden from this client. */
export function notFound(): GoogleError {
  return new GoogleError({ code: 404, status: 'NOT_FOUND', message: 'Requested entity was not found.' });
}

/** 403: the spreadsheet belongs to another account. */
export function permissionDenied(): GoogleError {
  return new GoogleError({
    code: 403,
    status: 'PERMISSION_DENIED',
    message: 'The caller does not have permission',
  });
}

/**
 * 501: Google implements this, the sandbox does not. A success would let a test pass although nothing was done.
 */
export function notImplemented(what: string): GoogleError {
  return new GoogleError({
    code: 501,
    status: 'UNIMPLEMENTED',
    message: `The sandbox does not implement ${what}.`,
  });
}

/** 401 with the text of Google's gateway, for a missing or invalid token. */
export function unauthenticated(kind: 'missing' | 'invalid'): GoogleError {
  const expected =
    'Expected OAuth 2 access token, login cookie or other valid authentication credential. ' +
    'See https://developers.google.com/identity/sign-in/web/devconsole-project.';
  const challenge = 'Bearer realm="https://accounts.google.com/"';
  if (kind === 'invalid') {
    return new GoogleError({
      code: 401,
      status: 'UNAUTHENTICATED',
      message: `Request had invalid authentication credentials. ${expected}`,
      headers: { 'WWW-Authenticate': `${challenge}, error="invalid_token"` },
    });
  }
  return new GoogleError({
    code: 401,
    status: 'UNAUTHENTICATED',
    message: `Request is missing required authentication credential. ${expected}`,
    details: [errorInfo('CREDENTIALS_MISSING', {})],
    headers: { 'WWW-Authenticate': challenge },
  });
}

/** 403 for a token without any of the scopes that the method accepts. `rpc` is e.g. `GetValues`. */
export function scopeInsufficient(rpc: string, accepted: readonly string[]): GoogleError {
  const method = `google.apps.sheets.v4.SpreadsheetsService.${rpc}`;
  return new GoogleError({
    code: 403,
    status: 'PERMISSION_DENIED',
    message: 'Request had insufficient authentication scopes.',
    details: [errorInfo('ACCESS_TOKEN_SCOPE_INSUFFICIENT', { service: 'sheets.googleapis.com', method })],
    headers: {
      'WWW-Authenticate':
        'Bearer realm="https://accounts.google.com/", error="insufficient_scope", ' +
        `scope="${accepted.join(' ')}"`,
    },
  });
}

function errorInfo(reason: string, metadata: Record<string, string>): object {
  return { '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason, domain: 'googleapis.com', metadata };
}
