/**
 * Errors in the format of Drive v3, with reasons in `errors[]`.
 */

/** The part of the request that caused an error. */
interface Place {
  readonly location: string;
  readonly locationType: 'parameter' | 'header';
}

/** An error response: `{"error": {code, message, errors: [{domain, reason, message}]}}`. */
export class DriveError extends Error {
  readonly code: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly #reason: string;
  readonly #place: Place | undefined;
  readonly #status: { status: string; details?: readonly object[] } | undefined;

  constructor(init: {
    code: number;
    reason: string;
    message: string;
    place?: Place;
    /** Additional fields of errors from Google's gateway. */
    gateway?: { status: string; details?: readonly object[] };
    headers?: Readonly<Record<string, string>>;
  }) {
    super(init.message);
    this.code = init.code;
    this.headers = init.headers ?? {};
    this.#reason = init.reason;
    this.#place = init.place;
    this.#status = init.gateway;
  }

  toJson(): object {
    const { code, message } = this;
    const one = { message, domain: 'global', reason: this.#reason, ...this.#place };
    return { error: { code, message, errors: [one], ...this.#status } };
  }
}

/** 404: no such file, or a file that is hidden from this account or client. */
export function fileNotFound(fileId: string): DriveError {
  const place = { location: 'fileId', locationType: 'parameter' } as const;
  return new DriveError({ code: 404, reason: 'notFound', message: `File not found: ${fileId}.`, place });
}

/** 400: an invalid parameter. */
export function invalidParameter(name: string, message: string): DriveError {
  const place = { location: name, locationType: 'parameter' } as const;
  return new DriveError({ code: 400, reason: name === 'q' ? 'invalid' : 'invalidParameter', message, place });
}

/** 400 for an invalid body or upload. */
export function badRequest(message: string): DriveError {
  return new DriveError({ code: 400, reason: 'badRequest', message });
}

/** 413: the file exceeds the sandbox's limit. */
export function uploadTooLarge(limitBytes: number): DriveError {
  const message = `The sandbox takes files of up to ${limitBytes} bytes.`;
  return new DriveError({ code: 413, reason: 'uploadTooLarge', message });
}

/** 403: the storage quota of the sandbox is exhausted, in bytes or in files. */
export function quotaExceeded(): DriveError {
  const message = "The user's Drive storage quota has been exceeded.";
  return new DriveError({ code: 403, reason: 'storageQuotaExceeded', message });
}

/** 403: a spreadsheet has no content to download. */
export function notDownloadable(): DriveError {
  const message = 'Only files with binary content can be downloaded. Use Export with Docs Editors files.';
  const place = { location: 'alt', locationType: 'parameter' } as const;
  return new DriveError({ code: 403, reason: 'fileNotDownloadable', message, place });
}

/** 416 for a range that starts beyond the last byte (RFC 9110 §15.5.17). */
export function rangeNotSatisfiable(sizeBytes: number): DriveError {
  return new DriveError({
    code: 416,
    reason: 'requestedRangeNotSatisfiable',
    message: 'Request range not satisfiable',
    place: { location: 'Range', locationType: 'header' },
    headers: { 'Content-Range': `bytes */${sizeBytes}` },
  });
}

/** 400: the address of a push channel requires TLS. */
export function pushAddressNotHttps(): DriveError {
  return new DriveError({
    code: 400,
    reason: 'push.webhookUrlNotHttps',
    message: 'WebHook callback must be HTTPS',
  });
}

/** 401: the project has not verified the domain of the address. */
export function pushAddressUnauthorized(address: string): DriveError {
  const message = `Unauthorized WebHook callback channel: ${address}`;
  return new DriveError({ code: 401, reason: 'push.webhookUrlUnauthorized', message });
}

/** 400: the channel ID is not unique in the project. */
export function channelIdNotUnique(id: string): DriveError {
  return new DriveError({ code: 400, reason: 'channelIdNotUnique', message: `Channel id ${id} not unique` });
}

/** 404: no such channel, or a channel of another account or client. */
export function channelNotFound(id: string, project: string): DriveError {
  const message = `Channel '${id}' not found for project '${project}'`;
  return new DriveError({ code: 404, reason: 'notFound', message });
}

/** 501: Google implements this, the sandbox does not. */
export function notImplemented(what: string): DriveError {
  const message = `The sandbox does not implement ${what}.`;
  return new DriveError({ code: 501, reason: 'notImplemented', message });
}

/** 401 with the text of Google's gateway. */
export function unauthenticated(kind: 'missing' | 'invalid'): DriveError {
  const expected =
    'Expected OAuth 2 access token, login cookie or other valid authentication credential. ' +
    'See https://developers.google.com/identity/sign-in/web/devconsole-project.';
  const challenge = 'Bearer realm="https://accounts.google.com/"';
  const isInvalid = kind === 'invalid';
  return new DriveError({
    code: 401,
    reason: isInvalid ? 'authError' : 'required',
    message: isInvalid
      ? `Request had invalid authentication credentials. ${expected}`
      : `Request is missing required authentication credential. ${expected}`,
    place: { location: 'Authorization', locationType: 'header' },
    gateway: { status: 'UNAUTHENTICATED' },
    headers: { 'WWW-Authenticate': isInvalid ? `${challenge}, error="invalid_token"` : challenge },
  });
}

/** 403 for a token without any of the scopes that the method accepts. `rpc` is e.g. `DriveFiles.List`. */
export function scopeInsufficient(rpc: string, accepted: readonly string[]): DriveError {
  const info = {
    '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
    reason: 'ACCESS_TOKEN_SCOPE_INSUFFICIENT',
    domain: 'googleapis.com',
    metadata: { service: 'drive.googleapis.com', method: `google.apps.drive.v3.${rpc}` },
  };
  return new DriveError({
    code: 403,
    reason: 'insufficientPermissions',
    message: 'Request had insufficient authentication scopes.',
    gateway: { status: 'PERMISSION_DENIED', details: [info] },
    headers: {
      'WWW-Authenticate':
        'Bearer realm="https://accounts.google.com/", error="insufficient_scope", ' +
        `scope="${accepted.join(' ')}"`,
    },
  });
}
