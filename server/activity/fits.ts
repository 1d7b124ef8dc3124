import { type Expression, type SqlBool, sql } from 'kysely';
import type { OperationFilter } from './operations.ts';

/**
 * Whether a row of `operation` is what the filter asks for; the environment and the time are the caller's to ask for, by
 * an index. Messages are looked for within `range` alone, which has to hold the rows' times.
 */
export function fits(filter: OperationFilter, range: { from: Date; to: Date }): Expression<SqlBool> {
  const { integration, connection, type, status, text, endpoint, sync, variant } = filter;
  const conditions = [sql<SqlBool>`true`];
  if (integration !== undefined) conditions.push(sql`operation.integration = ${integration}`);
  if (connection !== undefined) conditions.push(sql`operation.connection = ${connection}`);
  if (type !== undefined) conditions.push(sql`operation.type = ${type}`);
  if (status !== undefined) conditions.push(sql`operation.status = ${status}`);
  if (endpoint !== undefined) conditions.push(sql`operation.details ->> 'endpoint' = ${String(endpoint)}`);
  if (sync !== undefined) {
    conditions.push(
      sql`operation.details ->> 'kind' = 'sync' and operation.details ->> 'function' = ${sync}`,
    );
  }
  if (variant !== undefined) conditions.push(sql`operation.details ->> 'variant' = ${variant}`);
  if (text !== undefined) {
    conditions.push(sql`(
      strpos(lower(operation.path), lower(${text}::text)) > 0
      or strpos(operation.error_code, lower(${text}::text)) > 0
      or exists (
        select from operation_message as told
        where
          told.created_at = operation.created_at
          and told.operation_id = operation.id
          and told.created_at >= ${range.from}
          and told.created_at < ${range.to}
          and strpos(lower(told.message), lower(${text}::text)) > 0
      )
    )`);
  }
  return sql<SqlBool>`${sql.join(conditions, sql` and `)}`;
}
