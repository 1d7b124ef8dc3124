import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { z } from 'zod';
import type { Dataset } from '../ledger.ts';

/**
 * Where an application stands in the peer's records, as it has noted it: a cursor, or a time from which on it asks.
 *
 * A file has one a line, as JSON.
 */
const position = z
  .strictObject({
    provider_config_key: z.string().min(1),
    connection_id: z.string().min(1),
    model: z.string().min(1),
    variant: z.string().min(1).default('base'),
    cursor: z.string().min(1).max(1000).optional(),
    modified_after: z.string().min(1).max(100).optional(),
  })
  .refine(({ cursor, modified_after }) => (cursor === undefined) !== (modified_after === undefined), {
    message: 'takes either cursor or modified_after',
  });
export type Position = Pick<z.output<typeof position>, 'cursor' | 'modified_after'>;

/** By `keyOfDataset`. Throws where a line is none, naming it. */
export async function readPositions(path: string): Promise<Map<string, Position>> {
  const found = new Map<string, Position>();
  let number = 0;
  for await (const line of createInterface({ input: createReadStream(path), crlfDelay: Infinity })) {
    number += 1;
    if (line.trim() === '') continue;
    const {
      provider_config_key: integration,
      connection_id: connection,
      model,
      variant,
      ...rest
    } = read(line, {
      path,
      number,
    });
    found.set(keyOfDataset({ integration, connection, model, variant }), rest);
  }
  return found;
}

function read(line: string, at: { path: string; number: number }): z.output<typeof position> {
  const fault = (what: string) => new Error(`${at.path}:${at.number}: ${what}`);
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    throw fault('is no JSON');
  }
  const parsed = position.safeParse(value);
  if (parsed.success) return parsed.data;
  throw fault(
    parsed.error.issues.map(({ path, message }) => `${path.join('.')} ${message}`.trim()).join('; '),
  );
}

export function keyOfDataset({ integration, connection, model, variant }: Dataset): string {
  return JSON.stringify([integration, connection, model, variant]);
}

/** The other way round. */
export function datasetOf(key: string): Dataset {
  const [integration, connection, model, variant] = JSON.parse(key) as [string, string, string, string];
  return { integration, connection, model, variant };
}
