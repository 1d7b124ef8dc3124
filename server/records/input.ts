import { z } from 'zod';
import type { ConnectionReader } from '../connections/reader.ts';
import type { Caller } from '../http/caller.ts';
import { maxRecords, readRecordId } from './check.ts';
import type { RecordAction } from './list.ts';

/** What callers may send to the record routes, in zod's words. */

const model = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9_-]{0,254}$/,
    'starts with a letter or digit and holds A-Z a-z 0-9 _ - alone',
  );

/** `base` is the variant of records that were saved without one. */
const variant = z
  .string()
  .min(1)
  .max(255)
  .refine((text) => !/\p{Cc}|\p{Cs}/u.test(text), 'holds a control character or a lone surrogate')
  .default('base');

/** Which dataset of the connection. */
export const datasetInput = { model, variant };

/** Where in it: after a cursor, which with `unless_emptied` is refused where the dataset was emptied since. */
export const cursorInput = {
  cursor: z.string().min(1).max(1000).optional(),
  unless_emptied: z.enum(['true', 'false']).default('false'),
};

/** Whose records. Other headers are left alone. */
export const connectionHeaders = z.looseObject({
  'connection-id': z.string().min(1),
  'provider-config-key': z.string().min(1),
});

/** Where the connection that a caller names is found. */
export function placeOf(
  caller: Caller,
  headers: z.output<typeof connectionHeaders>,
): Parameters<ConnectionReader['get']>[0] {
  return {
    environmentId: caller.environmentId,
    integrationKey: headers['provider-config-key'],
    connectionId: headers['connection-id'],
  };
}

/** Ids of records: strings, or integers, which stand for their decimal text. */
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
        'holds a NUL character or a lone surrogate',
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

/** A whole number in a query: its digits and nothing else. */
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
  .refine((id) => !id.includes('\0'), 'holds a NUL character');

/** One id or several, as a repeated parameter gives them. */
export const idsInput = z
  .union([oneId.transform((id) => [id]), z.array(oneId)])
  .pipe(z.array(z.string()).max(100));

/**
 * Any ISO 8601 time or date, as an instant to the microsecond, rounded up, since records of that time count. Without
 * an offset it is UTC. A `+` that the query turned into a space is understood.
 */
export const timeInput = z.string().transform((text, context): string => {
  const time = readTime(text.trim().replace(/ (\d\d(:?\d\d)?)$/, '+$1'));
  if (time !== undefined) return time;
  context.addIssue('is no ISO 8601 time, such as 2026-11-21T00:51:26.942747Z');
  return z.NEVER;
});

function readTime(text: string): string | undefined {
  const hasOffset = /T.*(Z|[+-]\d\d(:?\d\d)?)$/i.test(text);
  const whole = hasOffset ? text : `${/T/i.test(text) ? text : `${text}T00:00:00`}Z`;
  try {
    const instant = Temporal.Instant.from(whole);
    // Beyond what any record can carry all times are alike, and PostgreSQL knows no others.
    if (instant.epochMilliseconds < 0) return '1970-01-01T00:00:00Z';
    if (instant.epochMilliseconds > Date.UTC(9999, 0)) return '9999-01-01T00:00:00Z';
    return instant.toString({ smallestUnit: 'microsecond', roundingMode: 'ceil' });
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}
