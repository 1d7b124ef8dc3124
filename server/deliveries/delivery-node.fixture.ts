// A node of its own that delivers until it is killed: `node <this> <target, master key and limits as JSON>`.

import { createSecretKey } from 'node:crypto';
import { BlockList } from 'node:net';
import { noActivity } from '../activity/writer.ts';
import { brandNames } from '../brand.ts';
import { type DbTarget, openDb } from '../db/pool.ts';
import { createOutbound } from '../outbound/outbound.ts';
import { openVault } from '../vault.ts';
import { createDeliverer, type DelivererLimits } from './worker.ts';

const { target, masterKey, limits } = JSON.parse(process.argv[2] ?? '') as {
  target: DbTarget;
  masterKey: string;
  limits: Partial<DelivererLimits>;
};
const allow = new BlockList();
allow.addSubnet('127.0.0.1', 32, 'ipv4');
createDeliverer({
  db: openDb(target),
  vault: openVault([{ id: 'k', key: createSecretKey(Buffer.from(masterKey, 'base64')) }]),
  fetch: createOutbound({ allow: [{ addresses: allow }] }).fetchFor({ isTest: false }),
  mailer: undefined,
  brand: brandNames('trellis'),
  baseUrl: 'https://trellis.example',
  log: { warn: console.error },
  activity: noActivity,
  authModeOf: () => undefined,
  nowMs: Date.now,
  limits,
}).start();
