/**
 * Links by mail, where SMTP_URL is set.
 *
 * Owns: what the mails say, the way to the server. Does not own: the links (`set-up.ts`), whose they are. The server is the
 * operator's own, as the database is, so that the guard of calls to providers does not stand before it.
 */
import type { Config } from '../config/config.ts';
import type { Logger } from '../log.ts';

type Mail = { to: string; subject: string; text: string };
export type Mailer = {
  /** Whether the server has taken it; false, and a line in the log, where it did not within some seconds. */
  send(mail: Mail): Promise<boolean>;
};

const connectMs = 5_000;
const answerMs = 10_000;

/** Undefined where no SMTP_URL is set. Opens a connection for each mail, and nothing before the first. */
export function createMailer({
  smtp,
  log,
}: {
  smtp: Config['smtp'];
  log: Pick<Logger, 'warn'>;
}): Mailer | undefined {
  if (smtp === undefined) return undefined;
  return {
    async send({ to, subject, text }) {
      try {
        // Large, and not needed by most.
        const { createTransport } = await import('nodemailer');
        const transport = createTransport({
          url: smtp.url,
          connectionTimeout: connectMs,
          greetingTimeout: connectMs,
          socketTimeout: answerMs,
          // No mail of ours takes a file, or an address to fetch from.
          disableFileAccess: true,
          disableUrlAccess: true,
        });
        await transport.sendMail({ from: smtp.from, to: { name: '', address: to }, subject, text });
        return true;
      } catch (error) {
        // Neither the mail, which holds a link, nor the server's words, which may repeat it.
        const { code, responseCode } = error as { code?: unknown; responseCode?: unknown };
        log.warn({ code, status: responseCode }, 'the mail server did not take a mail');
        return false;
      }
    },
  };
}

export function invitationMail({
  to,
  link,
  by,
  brand,
}: {
  to: string;
  link: string;
  by: string;
  brand: string;
}): Mail {
  return {
    to,
    subject: `You are invited to ${brand}`,
    text: `${by} invites you to ${brand}.\n\nOpen this link to accept. It is good once, for seven days:\n\n${link}\n`,
  };
}

export function resetMail({ to, link, brand }: { to: string; link: string; brand: string }): Mail {
  return {
    to,
    subject: `A new password for ${brand}`,
    text:
      `Open this link to set a new password for ${brand}. It is good once, for an hour:\n\n${link}\n\n` +
      'If you did not ask for it, do nothing: your password stays.\n',
  };
}
