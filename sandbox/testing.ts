/** What the sandbox's own tests start from: one on a free port with a data dir of its own, and short ways to use it. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { type Sandbox, type SandboxOptions, startSandbox } from './main.ts';

export const testRedirectUri = 'http://localhost:9/oauth/callback';
export const spreadsheets = 'https://www.googleapis.com/auth/spreadsheets';
export const driveFile = 'https://www.googleapis.com/auth/drive.file';

/** What the token endpoint answered. */
interface TokenAnswer {
  access_token: string;
  refresh_token?: string;
  refresh_token_expires_in?: number;
  expires_in: number;
  scope: string;
  token_type: string;
  id_token?: string;
  error?: string;
  error_description?: string;
  error_subtype?: string;
}

/** A sandbox under test with the calls that tests make of it. */
export class Bench {
  readonly sandbox: Sandbox;

  constructor(sandbox: Sandbox) {
    this.sandbox = sandbox;
  }

  /** A control route's answer; throws with its text unless it is 200. */
  async control<T = Record<string, unknown>>(route: string, body?: unknown): Promise<T> {
    const response = await this.ask(route, body);
    const text = await response.text();
    if (response.status !== 200) throw new Error(`${route}: ${response.status} ${text}`);
    return JSON.parse(text) as T;
  }

  /** The raw answer of a control route. */
  ask(route: string, body?: unknown): Promise<Response> {
    const [method = '', path = ''] = route.split(' ');
    const json =
      body === undefined
        ? {}
        : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } };
    return fetch(`${this.sandbox.url}/_sandbox${path}`, { method, ...json });
  }

  /** An authorization address of the built-in client: offline, with consent, unless told otherwise. */
  authorizationUrl(parameters: Record<string, string | undefined> = {}): string {
    const url = new URL(`${this.sandbox.url}/o/oauth2/v2/auth`);
    const all: Record<string, string | undefined> = {
      client_id: this.sandbox.client.clientId,
      redirect_uri: testRedirectUri,
      response_type: 'code',
      scope: `openid email ${spreadsheets}`,
      access_type: 'offline',
      prompt: 'consent',
      state: 'st',
      ...parameters,
    };
    for (const [name, value] of Object.entries(all))
      if (value !== undefined) url.searchParams.set(name, value);
    return url.href;
  }

  /** Walks consent by the control route and gives the redirect's parameters. */
  async consent(
    parameters: Record<string, string | undefined> = {},
    decision: { account?: string; allow?: string[]; deny?: boolean } = {},
  ): Promise<URLSearchParams> {
    const { redirect } = await this.control<{ redirect: string }>('POST /authorize', {
      url: this.authorizationUrl(parameters),
      account: 'ada@example.com',
      ...decision,
    });
    return new URL(redirect).searchParams;
  }

  /** Posts a form to the token endpoint, with the built-in client's credentials unless the form brings others. */
  token(form: Record<string, string>, signal?: AbortSignal): Promise<Response> {
    const { clientId, clientSecret } = this.sandbox.client;
    const body = new URLSearchParams({ client_id: clientId, client_secret: clientSecret, ...form });
    return fetch(`${this.sandbox.url}/token`, { method: 'POST', body, signal: signal ?? null });
  }

  /** Posts a code to the token endpoint. */
  exchange(code: string, form: Record<string, string> = {}): Promise<Response> {
    return this.token({ grant_type: 'authorization_code', code, redirect_uri: testRedirectUri, ...form });
  }

  /** Posts a refresh token to the token endpoint. */
  refresh(refreshToken: string, form: Record<string, string> = {}, signal?: AbortSignal): Promise<Response> {
    return this.token({ grant_type: 'refresh_token', refresh_token: refreshToken, ...form }, signal);
  }

  /** The whole dance: consent, then tokens. */
  async connect(
    parameters: Record<string, string | undefined> = {},
    decision: { account?: string; allow?: string[] } = {},
  ): Promise<TokenAnswer> {
    const code = (await this.consent(parameters, decision)).get('code') ?? '';
    return readTokens(await this.exchange(code));
  }
}

/** A token answer's body. */
export async function readTokens(response: Response): Promise<TokenAnswer> {
  return (await response.json()) as TokenAnswer;
}

const openedOn = new Map<string, Sandbox[]>();

/** Starts a sandbox on a free port, closed at the end of the test; on a data dir of its own unless one is given. */
export async function openBench(t: TestContext, options: Partial<SandboxOptions> = {}): Promise<Bench> {
  const dataDir = options.dataDir ?? (await openDataDir(t));
  const sandbox = await startSandbox({ port: 0, ...options, dataDir });
  openedOn.get(dataDir)?.push(sandbox);
  return new Bench(sandbox);
}

/** An empty directory. At the end of the test the sandboxes on it are closed and it is removed. */
export async function openDataDir(t: TestContext): Promise<string> {
  const dataDir = await mkdtemp(join(tmpdir(), 'sandbox-'));
  openedOn.set(dataDir, []);
  t.after(async () => {
    for (const sandbox of openedOn.get(dataDir) ?? []) await sandbox.close();
    openedOn.delete(dataDir);
    await rm(dataDir, { recursive: true, force: true });
  });
  return dataDir;
}
