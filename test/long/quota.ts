// Fifty connections of one client on two nodes, one of them greedy, at a provider that counts as Google does.

import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { providersDirectory } from '../../server/app/app.ts';
import { authModes } from '../../server/auth-modes/modes.ts';
import { type Catalog, loadCatalog } from '../../server/providers/catalog.ts';
import { openTestDatabase, urlOf } from '../support/database.ts';
import { freePort } from '../support/ports.ts';
import { openSecretWatch } from '../support/secret-watch.ts';
import { type RunningService, startRunningService } from '../support/service.ts';
import { type Caller, callerAt, connect, openTrellis } from '../support/trellis.ts';

type Simulation = {
  /** Of the limits. Processes of their own have the definition's, a minute. */
  windowS: number;
  perProject: number;
  perAccount: number;
  connections: number;
  /** Calls that the greedy connection has under way at any time. */
  greed: number;
  /** Calls that each other connection makes. */
  perSecond: number;
  seconds: number;
};

type Outcome = {
  /** Calls that the provider refused. */
  refused: number;
  /** By connection but the greedy one: served calls by asked ones. */
  shares: number[];
  /** Of the served calls of the others, in ms, the answer included. */
  waits: number[];
  served: number;
  greedyServed: number;
};

/** Two nodes, and a sandbox that both use. */
type Stage = { nodes: [Caller, Caller]; close(): Promise<void> };

/** Runs for so many seconds with two services in this process and says what came of it. */
export async function simulate(given: Simulation): Promise<Outcome> {
  const trellis = await openTrellis({}, { catalog: catalogWith(given) });
  const other = await trellis.serveAnother();
  const close = async () => {
    await other.close();
    await trellis.close();
  };
  return playOn({ nodes: [trellis, { ...trellis, ...other }], close }, { given, setting: 'on' });
}

/** The same with two services that are processes of their own, the way `npm start` runs them. */
export async function simulateProcesses(given: Omit<Simulation, 'windowS'>): Promise<Outcome> {
  const { target, drop } = await openTestDatabase();
  const env = {
    DATABASE_URL: urlOf(target),
    TRELLIS_ENCRYPTION_KEYS: `test:${randomBytes(32).toString('base64')}`,
    TRELLIS_SECRET_KEY: randomBytes(32).toString('hex'),
  };
  const first = await startRunningService({ env });
  // The second one's own sandbox is there and unused: all addresses of its test integrations are the first one's.
  const second = await startRunningService({
    env: { ...env, SANDBOX_PORT: String(await freePort()), SANDBOX_URL: first.sandboxUrl },
  });
  const callerOn = ({ baseUrl, secretKey }: RunningService): Caller => ({
    ...callerAt({ baseUrl, key: secretKey, watch: openSecretWatch() }),
    control: async (method, route, body) =>
      (await first.sandbox(method, route, body)) as Record<string, unknown>,
  });
  const close = async () => {
    await second.stop();
    await first.stop();
    await drop();
  };
  const setting = `ReadRequestsPerMinutePerProject=${given.perProject}, ReadRequestsPerMinutePerUser=${given.perAccount}`;
  const nodes: Stage['nodes'] = [callerOn(first), callerOn(second)];
  return playOn({ nodes, close }, { given: { ...given, windowS: 60 }, setting });
}

async function playOn(
  { nodes, close }: Stage,
  { given, setting }: { given: Simulation; setting: string },
): Promise<Outcome> {
  const [trellis] = nodes;
  try {
    await trellis.call('POST', '/integrations/quickstart', {
      body: { provider: 'google-sheet', unique_key: 'google-sheet', integration_config: { quota: setting } },
    });
    const subjects: { headers: Record<string, string> }[] = [];
    for (let n = 0; n < given.connections; n += 1) {
      const account = `user-${n}@example.com`;
      await trellis.control('POST', 'accounts', { email: account });
      subjects.push(await connect(trellis, { account }));
    }
    await trellis.control('POST', 'quota', {
      reads_per_project: given.perProject,
      reads_per_account: given.perAccount,
      window_s: given.windowS,
    });
    const endsAt = performance.now() + given.seconds * 1000;
    /** A read that the provider answers with 404, which counts as any other. */
    const read = async (subject: number) => {
      const sentAt = performance.now();
      const answer = await nodes[subject % 2]!.call('GET', '/proxy/v4/spreadsheets/none', {
        headers: {
          ...subjects[subject]!.headers,
          'quota-wait': String(Math.min(60, Math.ceil((endsAt - sentAt) / 1000))),
        },
      });
      return { status: answer.status, ms: performance.now() - sentAt, endedAt: performance.now() };
    };
    const counts = subjects.map(() => ({ asked: 0, served: 0 }));
    const waits: number[] = [];
    const note = async (subject: number) => {
      const count = counts[subject]!;
      count.asked += 1;
      const { status, ms, endedAt } = await read(subject);
      if (status !== 404 || endedAt > endsAt) return;
      count.served += 1;
      if (subject > 0) waits.push(ms);
    };
    const greedy = Array.from({ length: given.greed }, async () => {
      while (performance.now() < endsAt) await note(0);
    });
    const everyMs = 1000 / given.perSecond;
    const modest = subjects.slice(1).map(async (_, index) => {
      await sleep((everyMs * index) / given.connections);
      const calls: Promise<void>[] = [];
      while (performance.now() < endsAt) {
        calls.push(note(index + 1));
        await sleep(everyMs);
      }
      await Promise.all(calls);
    });
    await Promise.all([...greedy, ...modest]);
    const { refused } = await trellis.control('GET', 'quota');
    return {
      refused: Number(refused),
      shares: counts.slice(1).map(({ asked, served }) => served / asked),
      waits: waits.toSorted((one, two) => one - two),
      served: counts.reduce((sum, { served }) => sum + served, 0),
      greedyServed: counts[0]!.served,
    };
  } finally {
    await close();
  }
}

/** Jain's index: 1 where all have the same, 1/n where one has all. */
export function fairness(shares: readonly number[]): number {
  const sum = shares.reduce((total, share) => total + share, 0);
  const squares = shares.reduce((total, share) => total + share ** 2, 0);
  return sum ** 2 / (shares.length * squares);
}

function catalogWith({ windowS, perProject, perAccount }: Simulation): Catalog {
  const catalog = loadCatalog(providersDirectory, authModes);
  const sheets = catalog.get('google-sheet');
  const quota = {
    ...sheets.api.quota!,
    limits: sheets.api.quota!.limits.map((limit) => ({
      ...limit,
      window_s: windowS,
      count: limit.per === 'owner' ? perProject : perAccount,
      ...(limit.per === 'owner' && { burst: Math.ceil(perProject / 5) }),
    })),
  };
  const changed = { ...sheets, api: { ...sheets.api, quota } };
  return {
    ...catalog,
    get: (name) => (name === sheets.name ? changed : catalog.get(name)),
    find: (name) => (name === sheets.name ? changed : catalog.find(name)),
  };
}
