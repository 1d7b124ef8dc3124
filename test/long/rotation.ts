// Rotations of the master key on two nodes that are called all the time, one killed in the middle.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { answer, type Provider, startProvider } from '../conformance/provider.ts';
import { killCommand, runCommand } from '../support/command.ts';
import { openTestDatabase, type TestDatabase, urlOf } from '../support/database.ts';
import { type RunningService, startRunningService } from '../support/service.ts';

const integration = 'rotated';
const secretOf = (id: string) => `secret-of-${id}`;
const newKey = (n: number) => `k${n}:${randomBytes(32).toString('base64')}`;

type Node = { service: RunningService; inFlight: number };
type Outcome = { calls: number; failures: string[]; rewrapped: number };

/**
 * Rotates the master key this many times, as docs/operations/master-keys.md says it, node by node: the new key behind the old one,
 * then in front, then `keys rotate` (killed in the middle, and run again), then the old key away. All the while each
 * kind of call goes on, and what failed is told. Fails where something cannot be read with the last key alone, where a
 * deleted connection's key is left, or where one that was dropped is not asked for. Each of the callers pauses for
 * `pauseMs` after a call: what they take of the machine, the starts of the nodes wait for.
 */
export async function rotateUnderLoad({
  rotations,
  connections,
  pauseMs,
}: {
  rotations: number;
  connections: number;
  pauseMs: number;
}): Promise<Outcome> {
  const database = await openTestDatabase();
  const provider = await startProvider();
  const body = '{"from":"the provider"}';
  provider.play((seen) => seen.write(answer('200 OK', ['Content-Type: application/json'], body)));
  const env = {
    DATABASE_URL: urlOf(database.target),
    TRELLIS_SECRET_KEY: `rotation_${randomBytes(20).toString('hex')}`,
    TRELLIS_SANDBOX: 'off',
    TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8',
  };
  const withRing = (...ring: string[]) => ({ ...env, TRELLIS_ENCRYPTION_KEYS: ring.join(',') });
  let now = newKey(0);
  const nodes: Node[] = [];
  const replaceAll = async (...ring: string[]) => {
    for (const index of [0, 1]) await replaceNode(nodes, { index, env: withRing(...ring) });
  };
  const load = { calls: 0, failures: [] as string[] };
  let rewrapped = 0;
  const running = new AbortController();
  let callers = Promise.resolve();
  try {
    await replaceAll(now);
    const ids = await makeConnections(nodes[0]!.service, { provider, connections });
    callers = startCallers(nodes, { ids, load, pauseMs, signal: running.signal });
    for (let n = 1; n <= rotations; n += 1) {
      const next = newKey(n);
      await replaceAll(now, next);
      await replaceAll(next, now);
      rewrapped += await rotateTwice(database, { env: withRing(next, now) });
      const early = await runCommand(['start'], withRing(now));
      assert.match(early.stderr, new RegExp(`"k${n}" is missing`));
      await replaceAll(next);
      now = next;
    }
    await sleep(500);
    running.abort();
    await callers;
    await checkAll(nodes, { database, ids });
    return { ...load, rewrapped };
  } finally {
    running.abort();
    await callers;
    await Promise.all(nodes.map(({ service }) => service.stop()));
    await provider.close();
    await database.drop();
  }
}

/** The new one answers before the old one is asked nothing any more. */
async function replaceNode(
  nodes: Node[],
  { index, env }: { index: number; env: Record<string, string> },
): Promise<void> {
  const old = nodes[index];
  nodes[index] = { service: await startRunningService({ env }), inFlight: 0 };
  if (old === undefined) return;
  while (old.inFlight > 0) await sleep(10);
  assert.equal(await old.service.stop(), 0);
}

async function makeConnections(
  service: RunningService,
  { provider, connections }: { provider: Provider; connections: number },
): Promise<string[]> {
  await service.call('POST', '/integrations', {
    body: {
      unique_key: integration,
      provider: 'private-api-key',
      integration_config: { base_url: `http://127.0.0.1:${provider.port}` },
    },
  });
  const ids = Array.from({ length: connections }, (_, n) => `connection-${n}`);
  for (const id of ids) await makeConnection(service, id);
  for (const id of ids.slice(0, 20)) await saveRecord(service, id);
  return ids;
}

const headersOf = (id: string) => ({ 'provider-config-key': integration, 'connection-id': id });

async function makeConnection(service: RunningService, id: string): Promise<void> {
  await service.call('POST', '/connections', {
    body: {
      provider_config_key: integration,
      connection_id: id,
      credentials: { type: 'API_KEY', apiKey: secretOf(id) },
    },
  });
}

async function saveRecord(service: RunningService, id: string): Promise<void> {
  await service.call('POST', '/records', {
    headers: headersOf(id),
    body: { model: 'Row', records: [{ id: 'one', of: id }] },
  });
}

/** One caller for each kind of call; each goes on until the signal. */
async function startCallers(
  nodes: readonly Node[],
  {
    ids,
    load,
    pauseMs,
    signal,
  }: { ids: readonly string[]; load: Omit<Outcome, 'rewrapped'>; pauseMs: number; signal: AbortSignal },
): Promise<void> {
  let turn = 0;
  const once = async (name: string, work: (service: RunningService) => Promise<unknown>) => {
    turn += 1;
    const node = nodes[turn % nodes.length]!;
    node.inFlight += 1;
    load.calls += 1;
    await work(node.service)
      .catch((error: unknown) => load.failures.push(`${name}: ${String(error)}`))
      .finally(() => {
        node.inFlight -= 1;
      });
  };
  const kinds: ((n: number) => Promise<void>)[] = [
    (n) => {
      const id = ids[n % ids.length]!;
      return once('proxy', (service) => service.call('GET', '/proxy/any', { headers: headersOf(id) }));
    },
    (n) => once('save', (service) => saveRecord(service, ids[n % 20]!)),
    (n) => {
      const headers = headersOf(ids[n % 20]!);
      return once('records', (service) => service.call('GET', '/records?model=Row', { headers }));
    },
    async (n) => {
      const id = `passing-${n}`;
      await once('create', (service) => makeConnection(service, id));
      await once('delete', (service) =>
        service.call('DELETE', `/connections/${id}?provider_config_key=${integration}`),
      );
    },
  ];
  await Promise.all(
    kinds.map(async (kind) => {
      for (let n = 0; !signal.aborted; n += 1) {
        await kind(n);
        await sleep(pauseMs);
      }
    }),
  );
}

/** Killed when half of the keys are rewrapped, then run again; how many keys the second run took. */
async function rotateTwice({ db }: TestDatabase, { env }: { env: Record<string, string> }): Promise<number> {
  const old = env.TRELLIS_ENCRYPTION_KEYS!.split(',')[1]!.split(':')[0]!;
  const oldKeys = async () =>
    (await db.query<{ id: string }>('select id from data_key where master_key = $1 order by id', [old])).map(
      ({ id }) => id,
    );
  await db.transaction(async (tx) => {
    const all = await oldKeys();
    const held = all.slice(all.length / 2);
    await tx.query('select from data_key where id = any($1) for update', [held]);
    await killCommand(['keys', 'rotate'], {
      env,
      isTime: async () => {
        while ((await oldKeys()).length > held.length) await sleep(20);
      },
    });
  });
  const left = (await oldKeys()).length;
  assert.ok(left > 0);
  const dry = await runCommand(['keys', 'rotate', '--dry-run'], env);
  assert.match(dry.stdout, new RegExp(`^${left} data keys of ${old} would be wrapped`));
  const { code, stdout, stderr } = await runCommand(['keys', 'rotate'], env);
  assert.deepEqual([code, stderr], [0, '']);
  assert.match(stdout, new RegExp(`${old} wraps no data key any more: it is retired and can be removed`));
  assert.deepEqual(await oldKeys(), []);
  return Number(/^(\d+) data keys rewrapped:/m.exec(stdout)?.[1]);
}

async function checkAll(
  nodes: readonly Node[],
  { database, ids }: { database: TestDatabase; ids: readonly string[] },
): Promise<void> {
  const { service } = nodes[0]!;
  for (const [n, id] of ids.entries()) {
    const found = (await service.call('GET', `/connections/${id}?provider_config_key=${integration}`)) as {
      credentials: { apiKey: string };
    };
    assert.equal(found.credentials.apiKey, secretOf(id));
    if (n >= 20) continue;
    const page = (await service.call('GET', '/records?model=Row', { headers: headersOf(id) })) as {
      records: { of: string }[];
    };
    assert.deepEqual(
      page.records.map((record) => record.of),
      [id],
    );
  }
  const [row] = await database.db.query<{ keys: number; owners: number }>(
    `select
       (select count(*) from data_key) as keys,
       (select count(*) from connection where deleted_at is null) + (select count(*) from environment)
         + (select count(*) from sign_in_key) as owners`,
  );
  assert.equal(row?.keys, row?.owners);
}
