// The thread that hashes and seals large calls; started and fed by `seal-queue.ts`.

import { parentPort } from 'node:worker_threads';
import { DataKey } from '../vault.ts';
import { sealBatch } from './seal-batch.ts';
import type { SealOrder } from './seal-queue.ts';

parentPort?.on('message', ({ bytes, spans, root, datasetId }: SealOrder) => {
  const sealed = sealBatch({ bytes, spans, datasetId, dataKey: new DataKey(root.export()) });
  parentPort?.postMessage(sealed, [sealed.bodies.buffer, sealed.hashes.buffer]);
});
