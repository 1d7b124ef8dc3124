// What one node needs to run functions, on a database of somebody else's; by itself a process that runs until it is killed:
// `node <this> <settings as JSON>`.

import { createSecretKey } from 'node:crypto';
import { BlockList } from 'node:net';
import { pino } from 'pino';
import { shippedCatalog as catalog } from '../../../test/support/catalog.ts';
import { noActivity } from '../../activity/writer.ts';
import { brandNames } from '../../brand.ts';
import { createStatusTransitions } from '../../connections/health/status-transitions.ts';
import { createCredentialSource } from '../../connections/refresh/credentials.ts';
import { createConnectionReader } from '../../connections/store/reader.ts';
import { type DbTarget, openDb } from '../../db/pool.ts';
import { createOutbound } from '../../outbound/outbound.ts';
import { createProxy } from '../../proxy/proxy.ts';
import { createQuota } from '../../proxy/quota/quota.ts';
import { openVault } from '../../vault.ts';
import { createInnerProxy } from '../context/inner-proxy.ts';
import { sdkParts } from '../isolation/program.ts';
import { createRuntime } from '../isolation/runtime.ts';
import { createRunner, type RunnerLimits } from './worker.ts';

export type NodeSettings = {
  target: DbTarget;
  /** Of 32 bytes, base64. */
  masterKey: string;
  limits?: Partial<RunnerLimits>;
};

export type RunNode = Awaited<ReturnType<typeof openRunNode>>;

export async function openRunNode(
  { target, masterKey, limits }: NodeSettings,
  { nowMs = Date.now }: { nowMs?: () => number } = {},
) {
  const db = openDb(target, { maxConnections: 8 });
  const vault = openVault([{ id: 'k', key: createSecretKey(Buffer.from(masterKey, 'base64')) }]);
  const log = pino({ level: 'silent' });
  const brand = brandNames('trellis');
  const reading = { vault, catalog, testClient: undefined };
  const allow = new BlockList();
  allow.addSubnet('127.0.0.0', 8, 'ipv4');
  const outbound = createOutbound({ allow: [{ addresses: allow }] });
  const reader = createConnectionReader({ db, reading });
  const transitions = createStatusTransitions({ db, log, reader });
  const credentials = createCredentialSource({
    db,
    reader,
    transitions,
    vault,
    log,
    activity: noActivity,
    fetchFor: () => outbound.fetchFor({ isTest: false }),
  });
  const quota = createQuota({ db });
  const proxy = createInnerProxy({
    brand,
    createFront: (authenticate) =>
      createProxy({
        brand,
        log,
        authenticate,
        credentials,
        outbound,
        quota,
        isRootAlias: () => false,
        connections: reader,
      }),
  });
  const runtime = createRuntime(sdkParts, { maxProcesses: 4, memoryMb: 96, confinement: 'off' });
  const baseUrl = 'http://localhost:3003';
  const runner = createRunner({
    db,
    vault,
    brand,
    baseUrl,
    webhookBaseUrl: baseUrl,
    reader,
    credentials,
    outbound,
    proxy,
    runtime,
    log,
    nowMs,
    activity: noActivity,
    ...(limits && { limits }),
  });
  return {
    db,
    vault,
    reading,
    reader,
    runtime,
    runner,
    proxy,
    async close() {
      await runner.stop(0);
      await runtime.close();
      proxy.close();
      await Promise.all([credentials.settled(), quota.stop()]);
      await outbound.close();
      await db.end();
    },
  };
}

if (import.meta.main) {
  const node = await openRunNode(JSON.parse(process.argv[2] ?? '') as NodeSettings);
  node.runner.start();
}
