/** BASE_URL: whether providers accept it and whether it leads to this service; other servers that the service calls. */
import { BlockList, connect, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from '../../config/config.ts';
import type { AllowedRange } from '../../config/setting-values.ts';
import { createOutbound } from '../../outbound/outbound.ts';
import { adviceAtGoogle, whyNotAtGoogle } from '../../providers/google-address.ts';
import { type Check, type CheckResult, fail, messageOf, ok, skipped, warn } from './check.ts';

const limitMs = 5_000;
/** How long another doctor may hold the port while it checks. */
const looksForMs = 2_000;

export function addressChecks(config: Config): Check[] {
  return [
    { name: 'base-address', run: async () => checkBaseUrl(config.callbackBaseUrl ?? config.baseUrl) },
    { name: 'reachable', run: () => checkReachable(config.baseUrl) },
    { name: 'port', run: () => checkPort(config) },
    { name: 'openid', run: () => checkOidc(config.signIn.oidc?.issuer, config) },
    { name: 'mail', run: () => checkMail(config.smtp?.url) },
  ];
}

export function checkBaseUrl(baseUrl: string): CheckResult {
  const why = whyNotAtGoogle(baseUrl);
  if (why !== undefined)
    return warn(`Google does not accept ${baseUrl}/oauth/callback as a redirect URI.`, why);
  const advice = adviceAtGoogle(baseUrl);
  if (advice !== undefined) return ok(`${baseUrl} is for this machine only.`);
  return ok(`Google accepts ${baseUrl}/oauth/callback as a redirect URI.`);
}

export async function checkReachable(baseUrl: string): Promise<CheckResult> {
  const answer = await fetched(`${baseUrl}/health`);
  if ('error' in answer)
    return warn(
      `${baseUrl}/health does not respond from here: ${answer.error}`,
      'Start the service. If it runs, check the name, the certificate, and that the proxy in front forwards requests. Some networks do not route their public address back to themselves.',
    );
  if (answer.status !== 200 || !answer.text.includes('"result":"ok"'))
    return fail(
      `${baseUrl}/health responds with ${answer.status}, and the response is not from this service.`,
      'BASE_URL is the address of another program: correct the setting, or the paths of the proxy in front.',
    );
  return ok(`A running service responds at ${baseUrl}.`);
}

/** Whether the port is the service's own, or free for it. */
export async function checkPort(at: Pick<Config, 'host' | 'port'>): Promise<CheckResult> {
  const { host, port } = at;
  if (port === 0) return ok('The service uses any free port.');
  const since = performance.now();
  while (performance.now() - since < looksForMs) {
    const fault = await findListenFault(at);
    if (fault === undefined) return ok(`${host}:${port} is free.`);
    if (fault !== 'EADDRINUSE')
      return fail(
        `The service may not listen on ${host}:${port} (${fault}).`,
        'Set HOST to an address of this machine, and PORT to a number above 1023.',
      );
    if (await isOurs(at)) return ok(`The service listens on ${host}:${port}.`);
    // Another doctor holds the port only for its own check.
    await sleep(40);
  }
  return fail(`Another program listens on ${host}:${port}.`, 'End it, or set PORT to another port.');
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

export async function checkOidc(
  issuer: string | undefined,
  {
    outboundAllow: allow,
    outboundProxy: proxy,
  }: Pick<Config, 'outboundAllow'> & Partial<Pick<Config, 'outboundProxy'>>,
): Promise<CheckResult> {
  if (issuer === undefined) return skipped('TRELLIS_OIDC_ISSUER is not set.');
  const answer = await fetched(`${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`, {
    allow,
    proxy,
  });
  const remedy =
    'Correct TRELLIS_OIDC_ISSUER, or allow the service to reach it; until then users cannot sign in with OpenID.';
  if ('error' in answer) return fail(`${issuer} cannot be reached: ${answer.error}`, remedy);
  if (answer.status !== 200)
    return fail(`${issuer} responds with ${answer.status} for its configuration.`, remedy);
  return ok(`${issuer} responds.`);
}

/** Opens a connection, and sends nothing. */
async function checkMail(url: string | undefined): Promise<CheckResult> {
  if (url === undefined) return skipped('SMTP_URL is not set: links must be copied.');
  const { hostname, port, protocol } = new URL(url);
  const at = Number(port) || (protocol === 'smtps:' ? 465 : 587);
  const error = await new Promise<string | undefined>((resolve) => {
    const socket = connect({ host: hostname.replace(/^\[|\]$/g, ''), port: at, timeout: limitMs });
    const end = (fault?: string) => {
      resolve(fault);
      socket.destroy();
    };
    socket.once('connect', () => end());
    socket.once('timeout', () => end(`no response within ${limitMs / 1000} s`));
    socket.once('error', (fault) => end(messageOf(fault)));
    socket.once('close', () => end('the connection was closed'));
  });
  if (error === undefined) return ok(`${hostname}:${at} accepts connections.`);
  return fail(
    `The mail server ${hostname}:${at} cannot be reached: ${error}`,
    'Correct SMTP_URL, or allow the service to reach it; until then links must be copied.',
  );
}

type Answer = { status: number; text: string } | { error: string };

/** The service's own addresses may be in any network. Others are called as the service calls them. */
async function fetched(
  url: string,
  as: Parameters<typeof createOutbound>[0] = { allow: anywhere() },
): Promise<Answer> {
  const outbound = createOutbound(as);
  try {
    const signal = AbortSignal.timeout(limitMs);
    const headers = { accept: 'application/json' };
    const fetch = outbound.fetchFor({ isTest: false, purpose: 'sign-in' });
    const answer = await fetch(url, { method: 'GET', headers, redirect: 'manual', signal });
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
