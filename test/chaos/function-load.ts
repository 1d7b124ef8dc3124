/** Syncs that run by their schedule, actions that are called and left to run, and proxied calls, over tokens that end soon. */
import { setTimeout as sleep } from 'node:timers/promises';
import { pick, randomOf } from '../long/random.ts';
import { deployBody, flowConfig } from '../support/functions.ts';
import type { WirePage } from '../support/records.ts';
import type { Asked, Calls } from './calls.ts';
import { compareMarks, type Marks } from './marks.ts';
import type { Ready } from './provider.ts';
import { giveUpMs } from './record-load.ts';

export const integration = 'google-sheet';
const rows = 5;

/** Each attempt leaves a mark when it begins and one when it ends: their cursors tell in which order they were committed. */
const syncCode = `"use strict";
const { z } = require("zod");
exports.default = {
  type: "sync",
  description: "Marks when it begins and when it ends.",
  frequency: "every 30s",
  models: { Mark: z.object({ id: z.string() }).loose() },
  exec: async (trellis) => {
    const { spreadsheetId } = await trellis.getMetadata();
    const attempt = Date.now() + "-" + String(Math.random()).slice(2);
    await trellis.batchSave([{ id: attempt + ":begin" }], "Mark");
    for (let n = 0; n < 3; n += 1)
      await trellis.get({ endpoint: "/v4/spreadsheets/" + spreadsheetId + "/values/A1:B${rows}" });
    await trellis.batchSave([{ id: attempt + ":end" }], "Mark");
  },
};
`;
const actionCode = `"use strict";
const { z } = require("zod");
exports.default = {
  type: "action",
  description: "Doubles a number, once the provider was asked for something.",
  input: z.object({ n: z.number(), spreadsheetId: z.string() }),
  output: z.object({ n: z.number() }),
  exec: async (trellis, { n, spreadsheetId }) => {
    await trellis.get({ endpoint: "/v4/spreadsheets/" + spreadsheetId + "/values/A1" });
    return { n: n * 2 };
  },
};
`;

type Account = { connectionId: string; account: string; spreadsheetId: string; isStrict: boolean };
export type FunctionLoad = {
  accounts: readonly Account[];
  run(isOver: () => boolean, pauseMs: number): Promise<void>;
  /** Connects those again whose refresh token was lost with an answer, and waits for what was left to run. */
  finish(): Promise<void>;
  /** Connections that died, with their cause. */
  deaths: readonly { connectionId: string; cause: string; isStrict: boolean }[];
  /** Actions that were left to run, and came to something else than their output, by what it was. */
  otherEnds(): Record<string, number>;
  asked(): number;
  /** By the marks: attempts that wrote after another one had begun, and how many began without coming to their end. */
  checkMarks(): Promise<Marks>;
};

/**
 * Accounts with access tokens of five seconds. The refresh tokens of every other one are good once (`isStrict`): with an
 * answer that is lost they are lost. The others' stay good until their successor is used.
 */
export async function openFunctionLoad(
  calls: Calls,
  { provider, count, seed }: { provider: Ready; count: number; seed: number },
): Promise<FunctionLoad> {
  const random = randomOf(seed);
  const deaths: { connectionId: string; cause: string; isStrict: boolean }[] = [];
  const control = async (route: string, body: object) => {
    const [method = '', at = ''] = route.split(' ');
    const response = await fetch(`${provider.sandboxUrl}/_sandbox/${at}`, {
      method,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${route}: ${response.status} ${await response.text()}`);
    return (await response.json()) as Record<string, unknown>;
  };

  async function tokensOf(account: string) {
    const redirectUri = 'http://localhost:9/oauth/callback';
    const url = new URL(`${provider.sandboxUrl}/o/oauth2/v2/auth`);
    url.search = String(
      new URLSearchParams({
        client_id: provider.client.clientId,
        redirect_uri: redirectUri,
        response_type: 'code',
        access_type: 'offline',
        prompt: 'consent',
        state: 'st',
        scope: 'openid email https://www.googleapis.com/auth/spreadsheets',
      }),
    );
    const { redirect } = await control('POST authorize', { url: url.href, account });
    const response = await fetch(`${provider.sandboxUrl}/token`, {
      method: 'POST',
      body: new URLSearchParams({
        client_id: provider.client.clientId,
        client_secret: provider.client.clientSecret,
        grant_type: 'authorization_code',
        redirect_uri: redirectUri,
        code: new URL(String(redirect)).searchParams.get('code') ?? '',
      }),
    });
    return (await response.json()) as { access_token: string; refresh_token: string };
  }

  /** Makes the connection, or gives it new tokens. */
  async function connecting({
    account,
    connectionId,
    spreadsheetId,
  }: Omit<Account, 'isStrict'>): Promise<Asked> {
    const { access_token, refresh_token } = await tokensOf(account);
    return {
      method: 'POST',
      path: '/connections',
      body: {
        provider_config_key: integration,
        connection_id: connectionId,
        metadata: { spreadsheetId },
        credentials: {
          type: 'OAUTH2',
          access_token,
          refresh_token,
          expires_at: new Date(Date.now() + 5_000).toISOString(),
        },
      },
    };
  }

  async function makeAccount(n: number): Promise<Account> {
    const account = `user-${n}@example.com`;
    const isStrict = n % 2 === 1;
    await control('POST accounts', { email: account });
    for (const fault of [
      'token_expires_in_tiny',
      isStrict ? 'refresh_rotates' : 'refresh_rotates_until_used',
    ])
      await control('POST faults', { case: fault, account });
    // Between the new tokens and their arrival is where a kill costs most.
    await control('POST faults', { case: 'token_slow_after', account, delay_ms: 300 });
    const values = Array.from({ length: rows }, (_, at) => [at, `row ${at}`]);
    const { spreadsheetId } = await control('POST spreadsheets', { account, title: account, rows: values });
    const made = { account, connectionId: `sheet-${n}`, spreadsheetId: String(spreadsheetId), isStrict };
    await calls.insist('set up', await connecting(made));
    return made;
  }

  await calls.insist('set up', {
    method: 'POST',
    path: '/integrations/quickstart',
    body: { provider: 'google-sheet', unique_key: integration },
  });
  const accounts: Account[] = [];
  for (let n = 0; n < count; n += 1) accounts.push(await makeAccount(n));
  const flows = [
    flowConfig({ name: 'marks', type: 'sync', code: syncCode }),
    flowConfig({ name: 'double', type: 'action', code: actionCode }),
  ];
  await calls.insist('set up', { method: 'POST', path: '/sync/deploy', body: deployBody(flows) });

  const headersOf = ({ connectionId }: Account) => ({
    'connection-id': connectionId,
    'provider-config-key': integration,
  });
  const some = () => accounts[pick(random, accounts.length)]!;
  /** By the id of the call: what its output must be. */
  const left = new Map<string, number>();
  const otherEnds: Record<string, number> = {};
  const wrong: string[] = [];

  async function proxied(): Promise<void> {
    const account = some();
    await calls.make('proxy', {
      method: 'GET',
      path: `/proxy/v4/spreadsheets/${account.spreadsheetId}/values/A1:B${rows}`,
      headers: headersOf(account),
      giveUpMs,
    });
  }

  async function act(isLeft: boolean): Promise<void> {
    const account = some();
    const n = pick(random, 1_000_000);
    const outcome = await calls.make(isLeft ? 'action, left to run' : 'action', {
      method: 'POST',
      path: '/action/trigger',
      headers: { ...headersOf(account), ...(isLeft && { 'x-async': 'true', 'x-max-retries': '3' }) },
      body: { action_name: 'double', input: { n, spreadsheetId: account.spreadsheetId } },
    });
    if (outcome.kind !== 'done') return;
    if (isLeft) left.set((outcome.body as { id: string }).id, n * 2);
    else if ((outcome.body as { n: number }).n !== n * 2)
      wrong.push(`an action answered ${JSON.stringify(outcome.body)}`);
  }

  /** Connections that died are told, and connected again. */
  async function takeCare(): Promise<void> {
    for (const account of accounts) {
      const outcome = await calls.make('health', {
        method: 'GET',
        path: `/connections/${account.connectionId}/health?provider_config_key=${integration}`,
        giveUpMs,
      });
      if (outcome.kind !== 'done') continue;
      const { status, cause } = outcome.body as { status: string; cause: string | null };
      if (status === 'active') continue;
      deaths.push({ connectionId: account.connectionId, cause: String(cause), isStrict: account.isStrict });
      await calls.make('reconnect', await connecting(account));
    }
  }

  return {
    accounts,
    deaths,
    async run(isOver, pauseMs) {
      const repeat = async (work: () => Promise<void>, ms: number) => {
        while (!isOver()) {
          await work();
          await sleep(pick(random, ms * 2));
        }
      };
      await Promise.all([
        ...Array.from({ length: 3 }, () => repeat(proxied, pauseMs)),
        repeat(() => act(false), pauseMs * 4),
        repeat(() => act(true), pauseMs * 4),
        repeat(takeCare, 2_000),
      ]);
    },
    async finish() {
      for (const [id, n] of left) {
        for (let isOpen = true; isOpen; ) {
          const outcome = await calls.make('action, asked for', {
            method: 'GET',
            path: `/action/${id}`,
            mayBe: 404,
          });
          isOpen = outcome.kind === 'refused' && outcome.status === 404;
          if (outcome.kind === 'done' && (outcome.body as { n: number }).n !== n)
            wrong.push(`${id} came to ${JSON.stringify(outcome.body)}`);
          else if (outcome.kind !== 'done' && !isOpen) {
            const end = outcome.kind === 'refused' ? outcome.code : outcome.why;
            otherEnds[end] = (otherEnds[end] ?? 0) + 1;
          }
          if (isOpen) await sleep(250);
        }
      }
      for (const text of wrong) otherEnds[text] = 1;
      await takeCare();
    },
    otherEnds: () => otherEnds,
    asked: () => left.size,
    async checkMarks() {
      const found: Marks = { overlaps: [], attempts: 0, abandoned: 0 };
      for (const account of accounts) {
        const page = await calls.insist('list', {
          method: 'GET',
          path: '/records?model=Mark&limit=10000',
          headers: headersOf(account),
        });
        compareMarks(
          (page as WirePage).records.map(({ id }) => id),
          found,
        );
      }
      return found;
    },
  };
}
