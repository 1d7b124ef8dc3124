/** BASE_URL: whether providers take it, whether it leads here; and whom else the service has to reach. */
import { BlockList, connect, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from '../config/config.ts';
import type { AllowedRange } from '../config/outbound-allow.ts';
import { createOutbound } from '../outbound.ts';
import { adviceAtGoogle, whyNotAtGoogle } from '../providers/google-address.ts';
import { type Check, fail, messageOf, ok, skipped, type Verdict, warn } from './check.ts';

const limitMs = 5_000;
/** So long another doctor may keep taking the port while it looks. */
const looksForMs = 2_000;

export function addressChecks(config: Config): Check[] {
  return [
    { name: 'base-address', run: async () => judgeBaseUrl(config.baseUrl) },
    { name: 'reachable', run: () => judgeReachable(config.baseUrl) },
    { name: 'port', run: () => judgePort(config) },
    { name: 'openid', run: () => judgeOidc(config.signIn.oidc?.issuer, config.outboundAllow) },
    { name: 'mail', run: () => judgeMail(config.smtp?.url) },
  ];
}

export function judgeBaseUrl(baseUrl: string): Verdict {
  const why = whyNotAtGoogle(baseUrl);
  if (why !== undefined) return warn(`Google does not take ${baseUrl}/oauth/callback.`, why);
  const advice = adviceAtGoogle(baseUrl);
  if (advice !== undefined) return ok(`${baseUrl} is for this machine alone.`);
  return ok(`Google takes ${baseUrl}/oauth/callback as a redirect URI.`);
}

export async function judgeReachable(baseUrl: string): Promise<Verdict> {
  const answer = await fetched(`${baseUrl}/health`);
  if ('error' in answer)
    return warn(
      `${baseUrl}/health does not answer from here: ${answer.error}`,
      'Start the service; else see that the name leads to it, that the certificate is good, and that the proxy in front passes requests on. A network that does not lead its own address back in may be the reason, too.',
    );
  if (answer.status !== 200 || !answer.text.includes('"result":"ok"'))
    return fail(
      `${baseUrl}/health answers ${answer.status}, and not as this service does.`,
      'Something else stands at BASE_URL: correct the setting, or what the proxy in front does with paths.',
    );
  return ok(`${baseUrl} leads to a running service.`);
}

/** Whether the port is the service's own, or free for it. */
export async function judgePort(at: Pick<Config, 'host' | 'port'>): Promise<Verdict> {
  const { host, port } = at;
  if (port === 0) return ok('Any free port is taken.');
  const since = performance.now();
  while (performance.now() - since < looksForMs) {
    const fault = await findListenFault(at);
    if (fault === undefined) return ok(`${host}:${port} is free.`);
    if (fault !== 'EADDRINUSE')
      return fail(
        `The service may not listen on ${host}:${port} (${fault}).`,
        'Set HOST to an address of this machine, and PORT to one above 1023.',
      );
    if (await isOurs(at)) return ok(`The service listens on ${host}:${port}.`);
    // Another doctor takes it for as long as it looks, and then is done with it.
    await sleep(40);
  }
  return fail(`Another program listens on ${host}:${port}.`, 'End it, or set PORT to another one.');
}

/** The system's error code for a program that listens there; undefined if the program may listen. */
function findListenFault({ host, port }: Pick<Config, 'host' | 'port'>): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', ({ code }: NodeJS.ErrnoException) => resolve(`${code}`));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}

async function isOurs({ host, port }: Pick<Config, 'host' | 'port'>): Promise<boolean> {
  const here = host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host.includes(':') ? `[${host}]` : host;
  const answer = await fetched(`http://${here}:${port}/health`);
  return 'text' in answer && answer.text.includes('"result":"ok"');
}

export async function judgeOidc(
  issuer: string | undefined,
  allow: readonly AllowedRange[],
): Promise<Verdict> {
  if (issuer === undefined) return skipped('TRELLIS_OIDC_ISSUER is not set.');
  const answer = await fetched(`${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`, allow);
  const mend =
    'Correct TRELLIS_OIDC_ISSUER, or let the service reach it; nobody can sign in there until then.';
  if ('error' in answer) return fail(`${issuer} cannot be reached: ${answer.error}`, mend);
  if (answer.status !== 200) return fail(`${issuer} answers ${answer.status} for its configuration.`, mend);
  return ok(`${issuer} answers.`);
}

/** A connection, and no word said on it. */
async function judgeMail(url: string | undefined): Promise<Verdict> {
  if (url === undefined) return skipped('SMTP_URL is not set: links are copied.');
  const { hostname, port, protocol } = new URL(url);
  const at = Number(port) || (protocol === 'smtps:' ? 465 : 587);
  const error = await new Promise<string | undefined>((resolve) => {
    const socket = connect({ host: hostname.replace(/^\[|\]$/g, ''), port: at, timeout: limitMs });
    socket.once('connect', () => resolve(undefined));
    socket.once('timeout', () => resolve(`no answer within ${limitMs / 1000} s`));
    socket.once('error', (fault) => resolve(messageOf(fault)));
    socket.once('close', () => resolve('it was closed'));
    const end = () => socket.destroy();
    socket.once('connect', end).once('timeout', end);
  });
  if (error === undefined) return ok(`${hostname}:${at} takes connections.`);
  return fail(
    `The mail server ${hostname}:${at} cannot be reached: ${error}`,
    'Correct SMTP_URL, or let the service reach it; until then links have to be copied.',
  );
}

type Answer = { status: number; text: string } | { error: string };

/** Addresses of the service itself may be anywhere; others only where the service may call them. */
async function fetched(url: string, allow: readonly AllowedRange[] = anywhere()): Promise<Answer> {
  const outbound = createOutbound({ allow });
  try {
    const signal = AbortSignal.timeout(limitMs);
    const init = {
      method: 'GET',
      headers: { accept: 'application/json' },
      redirect: 'manual',
      signal,
    } as const;
    const answer = await outbound.fetchFor({ isTest: false, purpose: 'sign-in' })(url, init);
    let text = '';
    for await (const part of answer.body ?? []) {
      text += Buffer.from(part).toString('latin1');
      if (text.length > 64 * 1024) break;
    }
    return { status: answer.status, text };
  } catch (error) {
    return { error: messageOf(error) };
  } finally {
    await outbound.close();
  }
}

function anywhere(): AllowedRange[] {
  const addresses = new BlockList();
  addresses.addSubnet('0.0.0.0', 0, 'ipv4');
  addresses.addSubnet('::', 0, 'ipv6');
  return [{ addresses }];
}
