/**
 * HTTP responses like those of Google's front end: headers, JSON, compression, error pages.
 */
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { ApiReply } from '../api.ts';

const compress = promisify(gzip);

export interface SheetsAnswer extends ApiReply {
  /** Verb and path template, e.g. `GET /v4/spreadsheets/{spreadsheetId}`, for counting. */
  readonly route: string;
}

const googleHeaders = {
  Vary: 'Origin, X-Origin, Referer',
  Server: 'ESF',
  'Cache-Control': 'private',
  'X-XSS-Protection': '0',
  'X-Frame-Options': 'SAMEORIGIN',
  'X-Content-Type-Options': 'nosniff',
};

/** The response of a method: JSON with Google's headers, compressed if the client's headers allow it. */
export async function jsonAnswer(
  content: {
    status: number;
    json: object;
    route: string;
    isCompact: boolean;
    extra: Readonly<Record<string, string>>;
  },
  requestHeaders: Readonly<Record<string, string | string[] | undefined>>,
): Promise<SheetsAnswer> {
  const text = content.isCompact
    ? JSON.stringify(content.json)
    : `${JSON.stringify(content.json, null, 2)}\n`;
  const headers = {
    'Content-Type': 'application/json; charset=UTF-8',
    ...googleHeaders,
    ...content.extra,
  };
  // Google compresses only if both headers contain gzip.
  const isGzip = ['accept-encoding', 'user-agent'].every((name) =>
    String(requestHeaders[name] ?? '').includes('gzip'),
  );
  if (!isGzip) return { status: content.status, headers, body: text, route: content.route };
  const vary = `${googleHeaders.Vary}, Accept-Encoding`;
  const body = await compress(text, { level: 1 });
  return {
    status: content.status,
    headers: { ...headers, Vary: vary, 'Content-Encoding': 'gzip' },
    body,
    route: content.route,
  };
}

/** The gateway's HTML pages for requests without a known method. */
export function htmlPage(status: 400 | 404, path: string): SheetsAnswer {
  const shown = path.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
  const [title, said] =
    status === 404
      ? ['Error 404 (Not Found)!!1', `The requested URL <code>${shown}</code> was not found on this server.`]
      : ['Error 400 (Bad Request)!!1', 'Your client has issued a malformed or illegal request.'];
  return {
    status,
    headers: { 'Content-Type': 'text/html; charset=UTF-8', 'Referrer-Policy': 'no-referrer' },
    body: `<!DOCTYPE html>\n<html lang=en>\n<title>${title}</title>\n<p><b>${status}.</b> That's an error.\n<p>${said}\n`,
    route: `${status} /v4/*`,
  };
}
