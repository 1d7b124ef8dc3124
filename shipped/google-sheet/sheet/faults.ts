/** The errors of reading and writing a sheet, with messages for the person who can fix them. */
import type { ActionContext, ProxyError } from 'trellis';

export type FaultCode =
  | 'invalid_settings'
  | 'source_unavailable'
  | 'key_column_missing'
  | 'header_row_missing'
  | 'too_many_rows'
  | 'sheet_too_large'
  | 'sheet_moving'
  | 'integration_misconfigured'
  | 'missing_scopes'
  | 'quota_exhausted'
  | 'upstream_unreadable'
  | 'unknown_row'
  | 'unknown_field'
  | 'row_changed'
  | 'invalid_link'
  | 'refused'
  | 'outcome_unknown';

/** An error with a code. The run that throws it shows code and message. */
export function fault(code: FaultCode, message: string, payload?: Record<string, unknown>): Error {
  return Object.assign(new Error(message), { name: 'SheetFault', code, ...(payload && { payload }) });
}

type GoogleError = {
  message?: string;
  status?: string;
  details?: { reason?: string; links?: { url?: string }[] }[];
};

/** The error object in Google's response; undefined if there was no response. */
export function googleError(error: unknown): (GoogleError & { httpStatus: number }) | undefined {
  const { response } = (error ?? {}) as Partial<ProxyError>;
  if (response === undefined) return undefined;
  const parsed: unknown = Buffer.isBuffer(response.data) ? parse(response.data) : response.data;
  const body = (parsed as { error?: unknown } | null)?.error;
  return { ...(typeof body === 'object' && body !== null ? body : {}), httpStatus: response.status };
}

function parse(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString());
  } catch {
    return undefined;
  }
}

/** The error to throw for a failed request to Google. Failures that a retry can fix are returned unchanged. */
export function sourceFault(error: unknown, account: string | undefined): unknown {
  const google = googleError(error);
  if (google === undefined) return error;
  const { httpStatus, message = '', status, details = [] } = google;
  const reasons = details.map(({ reason }) => reason);
  const isPage = status === undefined && httpStatus === 403;
  if (httpStatus === 429 || isPage) {
    // A run that fails with this code is retried a little later.
    return fault(
      'quota_exhausted',
      'Google refused the request because the account or the project has reached its rate limit. Try again in a minute.',
    );
  }
  if (reasons.includes('ACCESS_TOKEN_SCOPE_INSUFFICIENT')) {
    return fault(
      'missing_scopes',
      'The connection lacks a permission that this request needs. Reconnect it and grant all permissions.',
    );
  }
  if (reasons.includes('SERVICE_DISABLED')) {
    return fault(
      'integration_misconfigured',
      message || 'The Google Sheets API is not enabled. Enable it in the Google Cloud project.',
    );
  }
  if (httpStatus === 404) {
    return fault(
      'source_unavailable',
      'The spreadsheet does not exist, or the account has no access to it. Check the link and the sharing settings.',
    );
  }
  if (httpStatus === 403 && status === 'PERMISSION_DENIED') {
    const user = account ?? 'the connected account';
    return fault(
      'source_unavailable',
      `Google denied access to the spreadsheet. Share the spreadsheet with ${user}.`,
    );
  }
  if (httpStatus !== 400) return error;
  if (/No grid with id|Unable to parse range/.test(message)) return tabGone();
  if (status === 'FAILED_PRECONDITION' || /not supported for this document/.test(message)) {
    return fault('source_unavailable', 'The file is an Office file. Save it as a Google spreadsheet.');
  }
  if (/protected cell/.test(message)) return fault('refused', message);
  if (/exceeds grid limits/.test(message)) {
    return fault('header_row_missing', 'The header row of the settings is beyond the last row of the sheet.');
  }
  return fault('refused', `Google refused the request: ${message}`);
}

export function invalidLink(): Error {
  return fault(
    'invalid_link',
    'The text is neither a link to a Google spreadsheet nor an ID of a spreadsheet.',
  );
}

export function tabGone(): Error {
  return fault('source_unavailable', 'The tab was deleted. Choose another tab. No records were deleted.');
}

/** Runs the body of an action. Callers get a fault as an `ActionError` with `type`, `message` and the fault's payload. */
export async function withActionErrors<T>(
  trellis: Pick<ActionContext, 'ActionError'>,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const { name, code, message, payload } = error as Error & { code?: string; payload?: object };
    if (name !== 'SheetFault') throw error;
    throw new trellis.ActionError({ type: code, message, ...payload });
  }
}
