/**
 * The page at the sandbox's root: what the provider knows, and forms by which a person breaks it by hand.
 *
 * Owns who may post a form. What the page shows is overview.ts; what a form does is forms.ts, which goes through
 * the control routes, so that a form can do nothing that a script cannot.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { ControlError } from '../control/answer.ts';
import type { ControlParts } from '../control/parts.ts';
import { html, htmlPage } from '../html.ts';
import type { Incoming, Reply } from '../http.ts';
import { actOn } from './forms.ts';
import { overviewPage } from './overview.ts';

/** The two routes of the page. */
interface Page {
  /** `GET /`. */
  show(request: Incoming): Promise<Reply>;
  /** `POST /`: does what the form says and goes back to the page; a complaint is shown on it. */
  act(request: Incoming): Promise<Reply>;
}

/** The page over these parts. If a key is set the page is closed, since a browser cannot send the key. */
export function createPage(parts: ControlParts, key: string | undefined): Page {
  const ticket = randomBytes(24).toString('base64url');
  if (key !== undefined) return { show: async () => closedPage(200), act: async () => closedPage(401) };
  return {
    show: async () => overviewPage(parts, { ticket }),
    act: async (request) => {
      const form = new URLSearchParams(request.body.toString());
      if (!isOwnForm(request, { sent: form.get('ticket') ?? '', ticket, url: parts.url })) {
        const complaint =
          'This form was not sent by this page, or the sandbox has been restarted since. Try again.';
        return overviewPage(parts, { ticket, complaint, typed: form });
      }
      try {
        const section = await actOn(form, { request, parts });
        return { status: 303, headers: { location: `/#${section}`, 'cache-control': 'no-store' }, body: '' };
      } catch (error) {
        if (!(error instanceof ControlError)) throw error;
        return overviewPage(parts, { ticket, complaint: error.message, typed: form });
      }
    },
  };
}

// Another site can make a browser post a form here, but it cannot read the ticket out of the page, and browsers say
// where a form comes from (Origin; Fetch Metadata, https://www.w3.org/TR/fetch-metadata/).
function isOwnForm(request: Incoming, by: { sent: string; ticket: string; url: string }): boolean {
  const { host, origin, 'sec-fetch-site': site } = request.headers;
  if (site !== undefined && site !== 'same-origin') return false;
  // Behind a proxy the Host may be its own; the address by which browsers know the sandbox is as good.
  const hosts = [host?.toLowerCase(), new URL(by.url).host];
  if (origin !== undefined && !(URL.canParse(origin) && hosts.includes(new URL(origin).host))) return false;
  const hash = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(hash(by.sent), hash(by.ticket));
}

function closedPage(status: number): Reply {
  return htmlPage(status, {
    title: 'Locked',
    body: html`<h1>This sandbox is locked</h1><p>Ask its routes under <code>/_sandbox</code> with the key.</p>`,
  });
}
