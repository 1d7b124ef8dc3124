import { z } from 'zod';
import type { Queryable } from '../db/pool.ts';
import { type Caller, hasScope, type ProxyCaller } from '../http/auth/caller.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import { text } from '../http/text.ts';
import { emailsOf, withAccounts } from './accounts.ts';
import {
  type OperationFilter,
  type OperationRow,
  operationStatuses,
  operationTypeNames,
} from './operations.ts';

/** An operation on the wire: in lists, alone, and in a tail. */
export const operationWire = z.object({
  id: z.string(),
  created_at: z.string(),
  type: z.string(),
  status: z.string(),
  provider_config_key: z.string().nullable(),
  connection_id: z.string().nullable(),
  /** Of the account or, if it has none, of the end user. Null without `connections:read`. */
  account_email: z.string().nullable(),
  /** `key:12`, ... */
  actor: z.string().nullable(),
  /** What the answer carried as X-Request-Id. */
  request_id: z.string().nullable(),
  duration_ms: z.number().nullable(),
  method: z.string().nullable(),
  path: z.string().nullable(),
  http_status: z.number().nullable(),
  error_code: z.string().nullable(),
  /** Made to the provider for this call; `retries` of them because the one before had failed. */
  requests: z.number().nullable(),
  retries: z.number().nullable(),
  request_bytes: z.number().nullable(),
  answer_bytes: z.number().nullable(),
  credentials_ms: z.number().nullable(),
  quota_ms: z.number().nullable(),
  connect_ms: z.number().nullable(),
  first_byte_ms: z.number().nullable(),
  body_ms: z.number().nullable(),
  details: z.record(z.string(), z.unknown()),
});
nameSchemas({ Operation: operationWire });

/** Each with the e-mail address of its account, if the caller may read connections. */
export async function operationsToWire<T extends OperationRow>(
  db: Queryable,
  { operations, caller }: { operations: readonly T[]; caller: Caller | ProxyCaller },
): Promise<z.input<typeof operationWire>[]> {
  const emailOf = await emailsOf(db, { caller, all: operations });
  return operations.map((operation) => {
    const { created_at: createdAt, integration, connection, ...same } = operation;
    return {
      ...same,
      created_at: createdAt.toISOString(),
      provider_config_key: integration,
      connection_id: connection,
      account_email: emailOf(operation),
      details: operation.details as Record<string, unknown>,
    };
  });
}

const mayReadAccounts = (caller: Caller | ProxyCaller) => hasScope(caller, 'connections:read');

/** Any time of ISO 8601 with an offset. */
export const timeInput = z.iso.datetime({ offset: true }).transform((given) => new Date(given));

/** What operations are chosen by, apart from their time. */
export const filterInput = {
  provider_config_key: text({ max: 255 }).optional(),
  connection_id: text({ max: 255 }).optional(),
  type: z.enum(operationTypeNames).optional(),
  status: z.enum(operationStatuses).optional(),
  text: text({ min: 1, max: 255 }).optional(),
};

type FilterQuery = { [Name in keyof typeof filterInput]?: z.output<(typeof filterInput)[Name]> };

/** The filter of the query, limited to the caller's environment. A text can be an e-mail address, see `accounts.ts`. */
export async function filterOf(db: Queryable, caller: Caller, given: FilterQuery): Promise<OperationFilter> {
  const { provider_config_key: integration, connection_id: connection, type, status, text } = given;
  const filter = { environmentId: caller.environmentId, integration, connection, type, status, text };
  return mayReadAccounts(caller) ? withAccounts(db, filter) : filter;
}
