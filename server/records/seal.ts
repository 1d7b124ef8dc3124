import { createHmac } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { DataKey } from '../vault.ts';
import type { CheckedRecord } from './check.ts';

/** Half an HMAC-SHA-256: two of them differ for differing content but for a chance of 2^-128. */
export const hashBytes = 16;

/** Records worked on before other requests get a turn: about 5 ms at 1 KB each. */
const turn = 250;

export type SealedRecord = { id: string; hash: Buffer; body: Buffer };

/**
 * Hashes and seals, in turns, so that a large call does not hold up small ones.
 *
 * Hash and seal are bound to dataset and id: equal payloads have neither equal hashes nor equal bodies, and a body
 * that was moved to another row does not open.
 */
export async function sealRecords(
  records: readonly CheckedRecord[],
  by: { dataKey: DataKey; datasetId: number },
): Promise<SealedRecord[]> {
  const hashKey = by.dataKey.subkey('record hash');
  const sealed: SealedRecord[] = [];
  for (let start = 0; start < records.length; start += turn) {
    if (start > 0) await nextTurn();
    const some = records.slice(start, start + turn);
    const bodies = by.dataKey.sealMany(
      some.map(({ id, text }) => ({ plain: text, context: contextOf(by.datasetId, id) })),
    );
    for (const [index, { id, canonical }] of some.entries()) {
      const hash = createHmac('sha256', hashKey)
        .update(`${contextOf(by.datasetId, JSON.stringify(id))}\n${canonical}`)
        .digest()
        .subarray(0, hashBytes);
      sealed.push({ id, hash, body: bodies[index] as Buffer });
    }
  }
  return sealed;
}

/** The payload's JSON text as UTF-8. Throws where the body is not the one of this record. */
export function openPayload(
  body: Buffer,
  by: { dataKey: DataKey; datasetId: number; recordId: string },
): Buffer {
  return by.dataKey.open(body, contextOf(by.datasetId, by.recordId));
}

function contextOf(datasetId: number, recordId: string): string {
  return `record ${datasetId} ${recordId}`;
}
