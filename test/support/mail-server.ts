import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { createInterface } from 'node:readline';

export type MailServer = {
  /** For SMTP_URL. */
  url: string;
  /** What was taken: to whom, and the message with its headers, lines ended by \n. */
  mails: { to: string; text: string }[];
  /** From now on recipients are refused, or taken again. */
  refuse(isRefusing: boolean): void;
  close(): Promise<void>;
};

/** A mail server on loopback that keeps what it gets (RFC 5321), as much of one as a client needs. */
export async function openMailServer(): Promise<MailServer> {
  const mails: MailServer['mails'] = [];
  const sockets = new Set<Socket>();
  let isRefusing = false;
  const server = createServer((socket) => {
    sockets.add(socket.once('close', () => sockets.delete(socket)).on('error', () => {}));
    let to = '';
    let message: string[] | undefined;
    const say = (line: string) => socket.write(`${line}\r\n`);
    say('220 mail.test');
    createInterface({ input: socket }).on('line', (line) => {
      if (message !== undefined) {
        if (line !== '.') message.push(line.replace(/^\.\./, '.'));
        else {
          mails.push({ to, text: message.join('\n') });
          message = undefined;
          say('250 taken');
        }
        return;
      }
      const word = line.slice(0, 4).toUpperCase();
      if (word === 'RCPT') to = /<(.*)>/.exec(line)?.[1] ?? '';
      if (word === 'RCPT' && isRefusing) say('550 no such box');
      else if (word === 'DATA') {
        message = [];
        say('354 go on');
      } else if (word === 'QUIT') socket.end('221 bye\r\n');
      else say('250 mail.test');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `smtp://127.0.0.1:${(server.address() as AddressInfo).port}`,
    mails,
    refuse: (given) => {
      isRefusing = given;
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}
