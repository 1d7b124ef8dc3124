/**
 * The routes of the page at the sandbox's root, and the check that a form comes from the page itself.
 *
 * overview.ts renders the page. forms.ts translates a form to a control route, so a form can do nothing that a script cannot.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { ControlError } from '../control/answer.ts';
import type { ControlParts } from '../control/parts.ts';
import { html, htmlPage } from '../html.ts';
import type { Incoming, Reply } from '../http.ts';
import { submitForm } from './forms.ts';
import { overviewPage } from './overview.ts';

/** The handlers of `GET /` and `POST /`. If a key is set, the page is locked, since a browser cannot send the key. */
export function createPage(parts: ControlParts, key: string | undefined) {
  const ticket = randomBytes(24).toString('base64url');
  if (key !== undefined) return { show: async () => closedPage(200), act: async () => closedPage(401) };
  return {
    show: async () => overviewPage(parts, { ticket }),
    /** Calls the control route of the form and redirects to the page, or shows the error on it. */
    act: async (request: Incoming): Promise<Reply> => {
      const form = new URLSearchParams(request.body.toString());
      if (!isOwnForm(request, { sent: form.get('ticket') ?? '', ticket, url: parts.url })) {
        const error = 'The form was not sent by this page, or the sandbox was restarted since. Try again.';
        return overviewPage(parts, { ticket, error, typed: form });
      }
      try {
        const section = await submitForm(form, { request, parts });
        return { status: 303, headers: { location: `/#${section}`, 'cache-control': 'no-store' }, body: '' };
      } catch (error) {
        if (!(error instanceof ControlError)) throw error;
        return overviewPage(parts, { ticket, error: error.message, typed: form });
      }
    },
  };
}

// Prevents CSRF: another site cannot read the ticket in the page, and browsers send the origin of a form (Origin; Fetch
// Metadata, https://www.w3.org/TR/fetch-metadata/).
function isOwnForm(request: Incoming, by: { sent: string; ticket: string; url: string }): boolean {
  const { host, origin, 'sec-fetch-site': site } = request.headers;
  if (site !== undefined && site !== 'same-origin') return false;
  // A proxy may send its own Host header, so the public address of the sandbox is also accepted.
  const hosts = [host?.toLowerCase(), new URL(by.url).host];
  if (origin !== undefined && !(URL.canParse(origin) && hosts.includes(new URL(origin).host))) return false;
  const hash = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(hash(by.sent), hash(by.ticket));
}

function closedPage(status: number): Reply {
  return htmlPage(status, {
    title: 'Locked',
    body: html`<h1>This sandbox is locked</h1><p>It has a key. Use the routes under <code>/_sandbox</code> with the key as a bearer token.</p>`,
  });
}
