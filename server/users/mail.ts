/**
 * Mail, if SMTP_URL is set: links to users, and alerts.
 *
 * Owns: the texts of mails to users, the connection to the server. Does not own: the links (`links.ts`), and the texts of
 * alerts (`deliveries/alert-text.ts`). The server is the operator's own, as the database is, so the guard of calls to
 * providers does not apply.
 */
import type { Config } from '../config/config.ts';
import type { Logger } from '../log.ts';

/** A mail with the same `messageId` is the same mail, sent again. */
type Mail = { to: string; subject: string; text: string; messageId?: string };
/** Why the server did not accept a mail: the client's code, such as ECONNECTION, and the SMTP status. */
type MailFailure = { code?: string; status?: number };
export type Mailer = {
  /** Whether the server has accepted it; false, with a line in the log, if it did not within some seconds. */
  send(mail: Mail): Promise<boolean>;
  /** As `send`, with the reason: undefined if the server has accepted it. */
  deliver(mail: Mail): Promise<MailFailure | undefined>;
};

const connectMs = 5_000;
const answerMs = 10_000;

/** Undefined if SMTP_URL is not set. Opens a connection for each mail, and none before the first. */
export function createMailer(given: { smtp: Config['smtp']; log: Pick<Logger, 'warn'> }): Mailer | undefined {
  const { smtp, log } = given;
  if (smtp === undefined) return undefined;
  async function deliver({ to, ...mail }: Mail): Promise<MailFailure | undefined> {
    try {
      // Large, and not needed by most.
      const { createTransport } = await import('nodemailer');
      const transport = createTransport({
        url: smtp!.url,
        connectionTimeout: connectMs,
        greetingTimeout: connectMs,
        socketTimeout: answerMs,
        // No mail of the service takes a file, or an address to fetch from.
        disableFileAccess: true,
        disableUrlAccess: true,
      });
      // Out-of-office programs do not answer such mails (RFC 3834).
      const headers = { 'Auto-Submitted': 'auto-generated' };
      await transport.sendMail({ from: smtp!.from, to: { name: '', address: to }, headers, ...mail });
      return undefined;
    } catch (error) {
      // Neither the mail, which may hold a link, nor the server's words, which may repeat it.
      const { code, responseCode } = error as { code?: unknown; responseCode?: unknown };
      const fault = {
        ...(typeof code === 'string' && { code }),
        ...(typeof responseCode === 'number' && { status: responseCode }),
      };
      log.warn(fault, 'the mail server did not accept a mail');
      return fault;
    }
  }
  return { deliver, send: async (mail) => (await deliver(mail)) === undefined };
}

export function invitationMail(given: { to: string; link: string; by: string; brand: string }): Mail {
  const { to, link, by, brand } = given;
  return {
    to,
    subject: `You are invited to ${brand}`,
    text: `${by} invites you to ${brand}.\n\nOpen this link to accept. It is valid for seven days and works once:\n\n${link}\n`,
  };
}

export function resetMail({ to, link, brand }: { to: string; link: string; brand: string }): Mail {
  return {
    to,
    subject: `A new password for ${brand}`,
    text:
      `Open this link to set a new password for ${brand}. It is valid for one hour and works once:\n\n${link}\n\n` +
      'If you did not request this mail, ignore it: your password is not changed.\n',
  };
}
