import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import {
  type Answer,
  type Body,
  brand,
  call,
  type ExportFormat,
  exportList,
  Fault,
  type Query,
} from '../../api/client.ts';
import type { At } from '../connections/queries.ts';

export type Dataset = Answer<'GET /records/datasets'>['datasets'][number];
type DatasetSettings = Omit<Body<'PATCH /records/datasets'>, 'model' | 'variant'>;
export type Consumer = Answer<'GET /records/consumers'>['consumers'][number];
export type Policy = Answer<'GET /records/retention'>['policies'][number];
type NewPolicy = Body<'PUT /records/retention'>;
type Page = Answer<'GET /records'>;
/** A dataset of a connection. */
export type DatasetAt = At & { model: string; variant: string };
export type Action = 'ADDED' | 'UPDATED' | 'DELETED';
/** Names of top-level fields, and their previous values if these were kept. */
type Changes = { fields: string[]; previous: Record<string, unknown> | null };
/** The metadata of a record, independent of the brand, apart from its fields. */
export type BrowsedRecord = {
  id: string;
  /** The payload; undefined if it is pruned. */
  fields: Record<string, unknown> | undefined;
  action: Action;
  firstSeenAt: string;
  lastModifiedAt: string;
  deletedAt: string | null;
  prunedAt: string | null;
  cursor: string;
  /** Null if the changes are unknown. */
  changes: Changes | null;
};

const headersOf = ({ integration, id }: At) => ({ 'connection-id': id, 'integration-id': integration });

/** The prefix of the query keys that a change of records makes stale. */
const keyOf = (environment: string, { integration, id }: At) => [environment, 'records', integration, id];

export type ListedDataset = Answer<'GET /records/datasets/of-connections'>['datasets'][number];

/** A page of connections, and all datasets of these connections. */
export const recordsOverviewQuery = (environment: string, query: Query<'GET /connections'>) =>
  queryOptions({
    queryKey: [environment, 'records', 'overview', query],
    queryFn: async ({ signal }) => {
      const page = await call('GET /connections', { environment, signal, query });
      const connection_ids = page.connections.map(({ id }) => id).join();
      const { datasets } =
        connection_ids === ''
          ? { datasets: [] }
          : await call('GET /records/datasets/of-connections', {
              environment,
              signal,
              query: { connection_ids },
            });
      return { ...page, datasets };
    },
  });

/** A page of a dataset, after a cursor. */
export const recordsQuery = (
  environment: string,
  { at, ...query }: { at: DatasetAt } & Omit<Query<'GET /records'>, 'model' | 'variant'>,
) =>
  queryOptions({
    queryKey: [...keyOf(environment, at), at.model, at.variant, 'page', query],
    queryFn: async ({ signal }) => {
      const page = await call('GET /records', {
        environment,
        signal,
        headers: headersOf(at),
        query: { model: at.model, variant: at.variant, ...query },
      });
      return { records: whole(page).records.map(readRecord), nextCursor: page.next_cursor };
    },
    placeholderData: keepPreviousData,
  });

/** One record with its last change; null if it does not exist. */
export const recordQuery = (environment: string, { at, record }: { at: DatasetAt; record: string }) =>
  queryOptions({
    queryKey: [...keyOf(environment, at), at.model, at.variant, 'one', record],
    queryFn: async ({ signal }) => {
      const query = { model: at.model, variant: at.variant, ids: record, changes: 'true' } as const;
      const page = await call('GET /records', { environment, signal, headers: headersOf(at), query });
      const found = whole(page).records[0];
      return found === undefined ? null : readRecord(found);
    },
  });

/** All consumers of the connection, for all datasets. */
export const consumersQuery = (environment: string, at: At) =>
  queryOptions({
    queryKey: [...keyOf(environment, at), 'consumers'],
    queryFn: async ({ signal }) =>
      (await call('GET /records/consumers', { environment, signal, headers: headersOf(at) })).consumers,
  });

export const policiesQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'retention'],
    queryFn: async ({ signal }) => (await call('GET /records/retention', { environment, signal })).policies,
  });

/** The effect of a prune up to the cursor at this moment. */
export function estimatePrune(
  environment: string,
  { at, untilCursor }: { at: DatasetAt; untilCursor: string },
): Promise<Answer<'POST /records/prune/estimate'>> {
  return call('POST /records/prune/estimate', {
    environment,
    headers: headersOf(at),
    body: { model: at.model, variant: at.variant, until_cursor: untilCursor },
  });
}

/** Fetched once, when the dialog opens, so that the numbers do not change before the confirmation. */
export const estimateQuery = (
  environment: string,
  { at, untilCursor }: { at: DatasetAt; untilCursor: string },
) =>
  queryOptions({
    queryKey: ['prune estimate', environment, at, untilCursor],
    queryFn: () => estimatePrune(environment, { at, untilCursor }),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
  });

/** The maximum of a call. Each call writes an entry of the audit log and one of the activity log. */
export const portionSize = 10_000;

/** Prunes one portion, oldest records first. */
export function prunePortion(
  environment: string,
  { at, untilCursor }: { at: DatasetAt; untilCursor: string },
): Promise<Answer<'PATCH /records/prune'>> {
  return call('PATCH /records/prune', {
    environment,
    headers: headersOf(at),
    body: { model: at.model, variant: at.variant, until_cursor: untilCursor, limit: portionSize },
  });
}

export async function setDatasetSettings(
  environment: string,
  { at, settings }: { at: DatasetAt; settings: DatasetSettings },
): Promise<void> {
  await call('PATCH /records/datasets', {
    environment,
    headers: headersOf(at),
    body: { model: at.model, variant: at.variant, ...settings },
  });
}

export async function forgetConsumer(
  environment: string,
  { at, name }: { at: DatasetAt; name: string },
): Promise<void> {
  await call('DELETE /records/consumers/{name}', {
    environment,
    headers: headersOf(at),
    path: { name },
    query: { model: at.model, variant: at.variant },
  });
}

export async function setPolicy(environment: string, body: NewPolicy): Promise<void> {
  await call('PUT /records/retention', { environment, body });
}

/** Null is the policy of the environment. */
export async function removePolicy(environment: string, integration: string | null): Promise<void> {
  const query = integration === null ? {} : { integration_id: integration };
  await call('DELETE /records/retention', { environment, query });
}

/** The records of a dataset that match the filters, as a file. */
export const exportRecords = (
  environment: string,
  {
    at,
    format,
    ...query
  }: { at: DatasetAt; format: ExportFormat } & Omit<Query<'GET /records'>, 'model' | 'variant'>,
) =>
  exportList('GET /records', {
    environment,
    headers: headersOf(at),
    query: { model: at.model, variant: at.variant, ...query },
    format,
  });

/** A page is streamed from the database, and may be incomplete. */
function whole(page: Page | undefined): Page {
  if (page !== undefined) return page;
  throw new Fault({ code: 'cut_off', message: 'The answer broke off before its end.', status: 0 });
}

function readRecord(record: Page['records'][number]): BrowsedRecord {
  const key = `_${brand()}_metadata`;
  const { id, [key]: metadata, ...fields } = record as Record<string, unknown>;
  const known = metadata as Page['records'][number]['_trellis_metadata'] & { changes?: Changes | null };
  return {
    id: String(id),
    fields: known.pruned_at === null ? fields : undefined,
    action: known.last_action,
    firstSeenAt: known.first_seen_at,
    lastModifiedAt: known.last_modified_at,
    deletedAt: known.deleted_at,
    prunedAt: known.pruned_at,
    cursor: known.cursor,
    changes: known.changes ?? null,
  };
}
