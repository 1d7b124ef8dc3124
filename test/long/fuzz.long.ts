import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { fuzz } from './fuzz.ts';

test('20,000 spoiled requests get no 5xx and no secret, leave the service whole and no memory behind', async (t) => {
  setFlagsFromString('--expose-gc');
  globalThis.gc ??= (await import('node:vm')).runInNewContext('gc') as typeof globalThis.gc;
  const seed = Number(process.env.FUZZ_SEED ?? 1);
  const { statuses, faults, grownMb, broken } = await fuzz({ requests: 20_000, seed, atOnce: 16 });
  t.diagnostic(`seed ${seed}: ${JSON.stringify(statuses)}, the heap grew by ${grownMb.toFixed(1)} MB`);
  assert.deepEqual(faults, []);
  assert.deepEqual(broken, []);
  assert.ok((statuses[200] ?? 0) > 1_000, JSON.stringify(statuses));
  assert.ok(grownMb < 60, String(grownMb));
});
