import { z } from 'zod';
import type { Activity } from '../../activity/writer.ts';
import type { Brand } from '../../brand.ts';
import type { ConnectionReader, LiveConnection } from '../../connections/store/reader.ts';
import type { Db } from '../../db/pool.ts';
import type { Caller } from '../../http/auth/caller.ts';
import { nameSchemas } from '../../http/openapi/schema-names.ts';
import { maxRecords, readRecordId } from '../codec/check.ts';
import type { RecordAction } from '../read/portion.ts';

/** The input of the record routes. */

export type RecordRouteDeps = {
  db: Db;
  brand: Brand;
  connections: Pick<ConnectionReader, 'get'>;
  activity: Activity;
  now: () => Date;
};

const model = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9_-]{0,254}$/,
    'must start with a letter or digit and contain only A-Z a-z 0-9 _ -',
  );

/** `base` is the variant of records that are saved without one. */
const variant = z
  .string()
  .min(1)
  .max(255)
  .refine((text) => !/\p{Cc}|\p{Cs}/u.test(text), 'contains a control character or a lone surrogate')
  .default('base');
nameSchemas({ Model: model, Variant: variant });

/** The dataset of the connection. */
export const datasetInput = { model, variant };

/** The position in the dataset. With `unless_emptied`, a cursor from before the dataset was emptied is refused. */
export const cursorInput = {
  cursor: z.string().min(1).max(1000).optional(),
  unless_emptied: z.enum(['true', 'false']).default('false'),
};

/** The headers that name the connection. Other headers are ignored. */
export const connectionHeaders = z.looseObject({
  'connection-id': z.string().min(1),
  'provider-config-key': z.string().min(1),
});

export type ConnectionRequest = { caller: Caller; headers: z.output<typeof connectionHeaders> };

/** Reads the connection that the request names. */
export async function connectionOf(
  connections: Pick<ConnectionReader, 'get'>,
  { caller, headers }: ConnectionRequest,
): Promise<LiveConnection> {
  return connections.get({
    environmentId: caller.environmentId,
    integrationKey: headers['provider-config-key'],
    connectionId: headers['connection-id'],
  });
}

/** Ids of records: strings, or integers, which stand for their decimal string. */
export const recordIdsInput = z
  .array(z.unknown())
  .max(maxRecords)
  .transform((given, context): string[] =>
    given.flatMap((id, index) => {
      const read = readRecordId(id);
      if ('id' in read) return [read.id];
      context.addIssue({ code: 'custom', message: read.fault, path: [index], input: id });
      return [];
    }),
  );

/** Names of fields at the top level of a payload. */
export const ignoreFieldsInput = z
  .array(
    z
      .string()
      .max(255)
      .refine(
        (name) => !name.includes('\0') && name.isWellFormed(),
        'contains a NUL character or a lone surrogate',
      ),
  )
  .max(100);

const actionOf: Record<string, RecordAction> = { added: 'ADDED', updated: 'UPDATED', deleted: 'DELETED' };

/** `added,deleted`, in any case and order: the union. */
export const actionsInput = z.string().transform((text, context): RecordAction[] => {
  const actions = text.split(',').map((part) => actionOf[part.trim().toLowerCase()]);
  if (actions.every((action) => action !== undefined)) return [...new Set(actions)];
  context.addIssue('is a comma-separated list of added, updated and deleted');
  return z.NEVER;
});

/** A whole number in a query: only digits. */
export const pageLimitInput = z
  .string()
  .regex(/^[0-9]{1,5}$/, 'is a whole number from 1 to 10000')
  .transform(Number)
  .pipe(z.number().min(1).max(10_000))
  .default(100);

const oneId = z
  .string()
  .min(1)
  .max(510)
  .refine((id) => !id.includes('\0'), 'contains a NUL character');

/** One id, or several by a repeated parameter. */
export const idsInput = z
  .union([oneId.transform((id) => [id]), z.array(oneId)])
  .pipe(z.array(z.string()).max(100));

/**
 * An ISO 8601 time or date, as an instant to the microsecond, rounded up, since records of that time count. Without an
 * offset it is UTC. A `+` that the query turned into a space is accepted.
 */
export const timeInput = z.string().transform((text, context): string => {
  const time = readTime(text.trim().replace(/ (\d\d(:?\d\d)?)$/, '+$1'));
  if (time !== undefined) return time;
  context.addIssue('is not an ISO 8601 time, such as 2026-11-21T00:51:26.942747Z');
  return z.NEVER;
});

function readTime(text: string): string | undefined {
  const hasOffset = /T.*(Z|[+-]\d\d(:?\d\d)?)$/i.test(text);
  const whole = hasOffset ? text : `${/T/i.test(text) ? text : `${text}T00:00:00`}Z`;
  try {
    const instant = Temporal.Instant.from(whole);
    // No record has a time outside of this range, and PostgreSQL does not accept all other times.
    if (instant.epochMilliseconds < 0) return '1970-01-01T00:00:00Z';
    if (instant.epochMilliseconds > Date.UTC(9999, 0)) return '9999-01-01T00:00:00Z';
    return instant.toString({ smallestUnit: 'microsecond', roundingMode: 'ceil' });
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}
