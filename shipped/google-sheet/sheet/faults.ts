/** The faults that prevent reading or writing a sheet, with messages for the person who can fix them. */
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

/** An error with a code, which a run shows as its own. */
export function fault(code: FaultCode, message: string, payload?: Record<string, unknown>): Error {
  return Object.assign(new Error(message), { name: 'SheetFault', code, ...(payload && { payload }) });
}

type GoogleError = {
  message?: string;
  status?: string;
  details?: { reason?: string; links?: { url?: string }[] }[];
};

/** Google's error object; undefined where it answered none. */
export function googleError(error: unknown): (GoogleError & { httpStatus: number }) | undefined {
  const { response } = (error ?? {}) as Partial<ProxyError>;
  const body: unknown = response?.data;
  if (response === undefined) return undefined;
  const parsed = Buffer.isBuffer(body) ? parse(body) : body;
  const told = (parsed as { error?: unknown } | null)?.error;
  return { ...(typeof told === 'object' && told !== null ? told : {}), httpStatus: response.status };
}

function parse(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString());
  } catch {
    return undefined;
  }
}

/** What a refused read of a spreadsheet means; what passes by itself stays the error that it is. */
export function sourceFault(error: unknown, account: string | undefined): unknown {
  const told = googleError(error);
  if (told === undefined) return error;
  const { httpStatus, message = '', status, details = [] } = told;
  const reasons = details.map(({ reason }) => reason);
  const isPage = status === undefined && httpStatus === 403;
  if (httpStatus === 429 || isPage) {
    // A run that says so is tried again a little later.
    return fault('quota_exhausted', 'Google takes no more calls of the account, or of the project, for now.');
  }
  if (reasons.includes('ACCESS_TOKEN_SCOPE_INSUFFICIENT')) {
    return fault('missing_scopes', 'The connection was not granted the right to do this. Connect it again.');
  }
  if (reasons.includes('SERVICE_DISABLED')) {
    return fault('integration_misconfigured', message || 'The Google Sheets API is not enabled.');
  }
  if (httpStatus === 404) {
    return fault(
      'source_unavailable',
      'There is no such spreadsheet, or the account may not see it any more.',
    );
  }
  if (httpStatus === 403 && status === 'PERMISSION_DENIED') {
    const whom = account === undefined ? 'the connected account' : account;
    return fault('source_unavailable', `Share the spreadsheet with ${whom}: it may not be read.`);
  }
  if (httpStatus !== 400) return error;
  if (/No grid with id|Unable to parse range/.test(message)) return tabGone();
  if (status === 'FAILED_PRECONDITION' || /not supported for this document/.test(message)) {
    return fault('source_unavailable', 'The file is an Office file: save it as a Google spreadsheet.');
  }
  if (/protected cell/.test(message)) return fault('refused', message);
  if (/exceeds grid limits/.test(message)) {
    return fault('header_row_missing', 'The sheet has no such row as the header row.');
  }
  return fault('refused', `Google refused: ${message}`);
}

export function tabGone(): Error {
  return fault(
    'source_unavailable',
    'The tab was deleted. Choose another one; nothing was deleted from the records.',
  );
}

/** Runs an action's work; a fault reaches its caller as `payload` with `type` and `message`. */
export async function told<T>(
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
