// A token endpoint over real sockets that keeps books: who asked with which token, what was accepted, what got lost.

import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * - `none`: a refresh token stays the same.
 * - `until_used`: each refresh brings another; the old one stays good until its latest successor is used.
 * - `single_use`: each refresh brings another; using an old one again ends the grant (RFC 9700 §4.14.2).
 */
export type Rotation = 'none' | 'until_used' | 'single_use';

/** How one request is answered. */
type Plan = {
  /** Before the token is looked at, and after, until the answer is sent. */
  beforeMs?: number;
  afterMs?: number;
  /** The token is accepted, and the connection broken instead of an answer. */
  isDropped?: boolean;
  /** The token is accepted, and this is sent instead of the answer. */
  page?: { status: number; type: string; text: string };
  /** Instead of looking at the token. */
  refusal?: { status: number; error: string };
};

export type Grant = {
  name: string;
  /** The refresh tokens that would be accepted now, the latest last. */
  good: string[];
  asked: number;
  accepted: number;
  /** Requests whose client waits for the answer. */
  underWay: number;
  maxAtOnce: number;
  /** Requests that are worked on, whether or not their client still waits. */
  workedOn: number;
  maxWorkedOn: number;
  /** Accepted refreshes in turn: whose request it was, and whether the answer left this machine. */
  answers: { node: string; isSent: boolean }[];
};

export type TokenProvider = {
  origin: string;
  /** A folder with one provider, `rotating`, whose token endpoint this is. */
  directory: string;
  /** Changes how requests are answered from now on. */
  plan: (grant: Grant) => Plan;
  /** A new grant under this name, with its first refresh token; any earlier one of the name is over. */
  issue(name: string): string;
  grant(name: string): Grant;
  close(): Promise<void>;
};

/** Requests say which node they come from in the header `x-node`. */
export async function startTokenProvider({
  rotation,
  timeoutMs,
}: {
  rotation: Rotation;
  timeoutMs: number;
}): Promise<TokenProvider> {
  const grants = new Map<string, Grant>();
  const nameOf = (token: string) => token.split('~')[0] ?? '';
  const tokenFor = (name: string) => `${name}~${randomBytes(8).toString('hex')}`;

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks = await Array.fromAsync(request as AsyncIterable<Buffer>);
    const token = new URLSearchParams(Buffer.concat(chunks).toString()).get('refresh_token') ?? '';
    const grant = grants.get(nameOf(token));
    if (grant === undefined) return send(response, 400, { error: 'invalid_grant' });
    const plan = provider.plan(grant);
    grant.asked += 1;
    grant.underWay += 1;
    grant.maxAtOnce = Math.max(grant.maxAtOnce, grant.underWay);
    grant.workedOn += 1;
    grant.maxWorkedOn = Math.max(grant.maxWorkedOn, grant.workedOn);
    const over = () => {
      grant.underWay -= 1;
    };
    if (response.closed) over();
    else response.once('close', over);
    await carryOut({ grant, token, plan, request, response }).finally(() => {
      grant.workedOn -= 1;
    });
  }

  async function carryOut({
    grant,
    token,
    plan: { beforeMs = 0, afterMs = 0, isDropped = false, refusal, page },
    request,
    response,
  }: {
    grant: Grant;
    token: string;
    plan: Plan;
    request: IncomingMessage;
    response: ServerResponse;
  }): Promise<void> {
    if (beforeMs > 0) await sleep(beforeMs);
    if (refusal) return send(response, refusal.status, { error: refusal.error });
    const successor = accept(grant, token);
    if (successor === undefined) return send(response, 400, { error: 'invalid_grant' });
    const noted = { node: String(request.headers['x-node'] ?? ''), isSent: false };
    grant.answers.push(noted);
    if (afterMs > 0) await sleep(afterMs);
    if (isDropped || response.destroyed) return void response.destroy();
    if (page) return void response.writeHead(page.status, { 'content-type': page.type }).end(page.text);
    noted.isSent = true;
    send(response, 200, {
      access_token: `access~${randomBytes(8).toString('hex')}`,
      token_type: 'Bearer',
      expires_in: 3600,
      ...(successor !== token && { refresh_token: successor }),
    });
  }

  /** The token that goes with the answer; undefined where this one is no good. */
  function accept(grant: Grant, token: string): string | undefined {
    if (!grant.good.includes(token)) {
      if (rotation === 'single_use') grant.good = [];
      return undefined;
    }
    grant.accepted += 1;
    if (rotation === 'none') return token;
    const successor = tokenFor(grant.name);
    grant.good = rotation === 'single_use' ? [successor] : [token, successor];
    return successor;
  }

  const server = createServer({ keepAlive: true }, (request, response) => {
    answer(request, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const directory = await mkdtemp(join(tmpdir(), 'trellis-provider-'));
  await writeFile(join(directory, 'rotating.yaml'), definition(origin, { rotation, timeoutMs }));
  const provider: TokenProvider = {
    origin,
    directory,
    plan: () => ({}),
    issue(name) {
      const token = tokenFor(name);
      const counts = { asked: 0, accepted: 0, underWay: 0, maxAtOnce: 0, workedOn: 0, maxWorkedOn: 0 };
      grants.set(name, { name, good: [token], answers: [], ...counts });
      return token;
    },
    grant(name) {
      const grant = grants.get(name);
      if (grant === undefined) throw new Error(`no grant is called ${name}`);
      return grant;
    },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await rm(directory, { recursive: true, force: true });
    },
  };
  return provider;
}

function send(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

function definition(
  origin: string,
  { rotation, timeoutMs }: { rotation: Rotation; timeoutMs: number },
): string {
  return `
display_name: Rotating
categories: [test]
docs: https://example.com/docs
logo: rotating.svg
auth_mode: OAUTH2
authorization: { url: ${origin}/authorize }
token:
  url: ${origin}/token
  timeout_ms: ${timeoutMs}
  errors: { admin_policy_enforced: blocked_by_admin }
refresh: { rotates: ${rotation !== 'none'} }
refresh_token_lifetime: { unused_days: 180 }
api: { base_url: ${origin} }
`;
}
