import { TrellisError } from './errors.ts';
import { type Batch, type FollowOptions, follow } from './follow.ts';
import { Paged } from './paged.ts';
import type { Answer, Body, CallOptions, Query } from './route-call.ts';
import type { Sent, Transport } from './transport.ts';

/** The metadata of a record: its times, its last action, and its `cursor`. */
export type RecordMetadata = Answer<'GET /records'>['records'][number]['_trellis_metadata'];

/**
 * A record as it is read: the saved fields, `id` as a string, and the metadata in `_trellis_metadata` (with the brand of the
 * service in its name). Each saved field may be undefined, because a pruned record has none; its metadata has `pruned_at`.
 */
export type StoredRecord<T = Record<string, unknown>, B extends string = 'trellis'> = (
  | Omit<T, 'id'>
  | { [K in Exclude<keyof T, 'id'>]?: undefined }
) & { id: string } & { [K in `_${B}_metadata`]: RecordMetadata };

/** A page of `GET /records`. */
export type RecordPage<T, B extends string = 'trellis'> = {
  records: StoredRecord<T, B>[];
  next_cursor: string | null;
};

/** A record to save. */
export type NewRecord<T> = Omit<T, 'id'> & { id: string | number };
/** The changed fields of a record. */
export type PartialRecord<T> = Partial<Omit<T, 'id'>> & { id: string | number };

export type ListOptions = Pick<CallOptions, 'signal'> & {
  /** Only records that changed after this position. */
  cursor?: string | undefined;
  /** Whether a cursor from before the dataset was emptied is refused with `cursor_expired`. By default it is valid. */
  unlessEmptied?: boolean | undefined;
  /** Only records whose last change is one of these. */
  filter?: readonly ('added' | 'updated' | 'deleted')[] | undefined;
  /** Only records with these IDs, at most 100. An empty list returns an empty page without a request. */
  ids?: readonly string[] | undefined;
  /** Only records that changed at or after this time. */
  modifiedAfter?: Date | string | undefined;
  /** Whether the metadata of each record lists the fields that its last change affected. */
  changes?: boolean | undefined;
  /** The number of records per request, 1 to 10,000. Defaults to 1,000. */
  pageSize?: number | undefined;
};

export type SaveOptions = CallOptions & Omit<Body<'POST /records'>, 'model' | 'variant' | 'records'>;

/** The progress of a prune. */
export type PruneProgress = {
  /** The number of payloads removed so far. */
  pruned: number;
  /** The number of payloads to remove at the start. */
  total: number;
};
export type PruneOptions = Pick<CallOptions, 'signal'> & {
  /** A cursor. Payloads up to and including this position are removed. */
  until: string;
  /** The number of payloads per call, 1 to 10,000. Defaults to 1,000. */
  batchSize?: number | undefined;
  /** Called after each call. Requests the total first. */
  onProgress?: ((progress: PruneProgress) => void) | undefined;
};

/** The dataset of a `Records` handle, and how to reach it. */
export type RecordsTarget = {
  transport: Transport;
  brand: string;
  integration: string;
  connectionId: string;
  model: string;
  variant: string | undefined;
};

/**
 * The synced records of one connection, model and variant: `connection.records<City>('City')`.
 *
 * `T` is the expected type of the records. Neither client nor service checks it.
 */
export class Records<T extends object = Record<string, unknown>, B extends string = 'trellis'> {
  readonly model: string;
  /** Defaults to `base`. */
  readonly variant: string;
  readonly #target: RecordsTarget;

  /** @internal */
  constructor(target: RecordsTarget) {
    this.model = target.model;
    this.variant = target.variant ?? 'base';
    this.#target = target;
  }

  /**
   * Lists all records in the order of their last changes, including tombstones. A record that changes during the iteration
   * moves to its new position, so it may appear twice; the later state comes last.
   */
  list(options: ListOptions = {}): Paged<StoredRecord<T, B>, RecordPage<T, B>> {
    const { cursor: from, pageSize = 1_000, signal, filter, ids, modifiedAfter, changes } = options;
    const query = {
      unless_emptied: options.unlessEmptied,
      limit: pageSize,
      filter: filter?.join(','),
      ids,
      modified_after: modifiedAfter instanceof Date ? modifiedAfter.toISOString() : modifiedAfter,
      changes,
    };
    const page = (cursor: string | undefined) => this.#page({ ...query, cursor }, { signal });
    return new Paged(
      async function* () {
        // In a query an empty list is no filter, so it would return all records.
        if (ids?.length === 0) return yield { records: [], next_cursor: null };
        for (let cursor = from; ; ) {
          const current = await page(cursor);
          yield current;
          if (current.next_cursor === null) return;
          cursor = current.next_cursor;
        }
      },
      ({ records }) => records,
    );
  }

  /** Returns one page of at most `limit` records after a cursor. */
  page(
    options: Pick<ListOptions, 'cursor' | 'unlessEmptied'> & {
      limit?: number | undefined;
    } & CallOptions = {},
  ): Promise<RecordPage<T, B>> {
    const { cursor, unlessEmptied, limit, ...call } = options;
    return this.#page({ cursor, unless_emptied: unlessEmptied, limit }, call);
  }

  /**
   * Yields existing and new changes after the position of the named consumer, in batches:
   *
   * ```ts
   * for await (const { records } of cities.follow({ consumer: 'billing' })) await store(records);
   * ```
   *
   * The service stores the position of the consumer. The position moves past a batch when the next one is requested, so an
   * interrupted batch comes again: each change comes at least once, in order. Retries during outages.
   *
   * Throws `cursor_expired` if a retention policy removed deletions that the consumer had not received, or if the dataset was
   * emptied, unless `onExpired` is `'restart'`. Throws `cursor_behind_consumer` if another program uses the same name, and the
   * signal's reason on an abort.
   */
  follow(options: FollowOptions): AsyncGenerator<Batch<T, B>, void, undefined> {
    const { transport, brand } = this.#target;
    return follow<T, B>(
      {
        metadataKey: `_${brand}_metadata`,
        page: (query, call) => this.#page(query, call),
        consumer: (name, call) => this.consumer(name, call),
        acknowledge: (name, body, call) =>
          transport.json({
            ...this.#sent('PUT /records/consumers/{name}'),
            path: { name },
            body: { ...this.#dataset(), ...body },
            ...call,
          }),
        lastCursor: (call) => this.#lastCursor(call),
      },
      options,
    );
  }

  /**
   * Streams all records after a cursor in one response, in cursor order: the most efficient way to read many. Throws
   * `export_cut_off` if the stream ends early; continue from the cursor of the last record, or start again.
   */
  export(
    options: Pick<ListOptions, 'cursor' | 'unlessEmptied' | 'signal'> = {},
  ): AsyncGenerator<StoredRecord<T, B>, void, undefined> {
    const { cursor, unlessEmptied, signal } = options;
    const { transport, brand } = this.#target;
    const query = { ...this.#dataset(), cursor, unless_emptied: unlessEmptied };
    const open = () =>
      transport.raw({
        ...this.#sent('GET /records/export'),
        query,
        signal,
        headers: { ...this.#headers(), accept: 'application/x-ndjson' },
      });
    return exportedRecords<StoredRecord<T, B>>(open, { endKey: `_${brand}_export`, signal });
  }

  /** Saves up to 10,000 records, at most 32 MB in total, in one transaction. Does not write unchanged records. */
  save(
    records: readonly NewRecord<T>[],
    { signal, timeoutMs, retries, ...options }: SaveOptions = {},
  ): Promise<Answer<'POST /records'>> {
    const body = { ...this.#dataset(), records, ...options };
    const call = { signal, timeoutMs, retries };
    return this.#target.transport.json({ ...this.#sent('POST /records'), body, ...call });
  }

  /** Merges fields into stored records. The result lists the IDs that are missing, deleted or pruned. */
  update(parts: readonly PartialRecord<T>[], call: CallOptions = {}): Promise<Answer<'PATCH /records'>> {
    const body = { ...this.#dataset(), records: parts };
    return this.#target.transport.json({ ...this.#sent('PATCH /records'), body, ...call });
  }

  /** Marks up to 10,000 records as deleted. Deletes nothing at the provider. */
  delete(ids: readonly (string | number)[], call: CallOptions = {}): Promise<Answer<'POST /records/delete'>> {
    const body = { ...this.#dataset(), ids };
    return this.#target.transport.json({ ...this.#sent('POST /records/delete'), body, ...call });
  }

  /**
   * Removes the payloads up to a cursor, with repeated calls until none is left, and returns their number. IDs, metadata and
   * cursors stay. After an abort, the payloads reported to `onProgress` are removed; repeat the call to continue.
   */
  async prune(options: PruneOptions): Promise<{ count: number }> {
    const { until, batchSize, onProgress, signal } = options;
    const total = onProgress && (await this.estimate({ until, signal })).count;
    const body = { ...this.#dataset(), until_cursor: until, limit: batchSize };
    let pruned = 0;
    for (;;) {
      const { count, has_more } = await this.#target.transport.json<Answer<'PATCH /records/prune'>>({
        ...this.#sent('PATCH /records/prune'),
        body,
        signal,
      });
      pruned += count;
      onProgress?.({ pruned, total: Math.max(total ?? 0, pruned) });
      if (!has_more) return { count: pruned };
    }
  }

  /** Prunes up to the position of a consumer. Throws `not_found` if there is no such consumer. */
  async pruneConsumed(
    consumer: string,
    options: Omit<PruneOptions, 'until'> = {},
  ): Promise<{ count: number }> {
    const { cursor } = await this.consumer(consumer, { signal: options.signal });
    return cursor === null ? { count: 0 } : this.prune({ ...options, until: cursor });
  }

  /** Returns the position of a consumer and the number of records after it. Throws `not_found`. */
  consumer(name: string, call: CallOptions = {}): Promise<Answer<'GET /records/consumers/{name}'>> {
    const sent = { ...this.#sent('GET /records/consumers/{name}'), path: { name } };
    return this.#target.transport.json({ ...sent, query: this.#dataset(), ...call });
  }

  /** Returns what a prune up to a cursor would remove. */
  estimate({
    until,
    ...call
  }: { until: string } & CallOptions): Promise<Answer<'POST /records/prune/estimate'>> {
    const body = { ...this.#dataset(), until_cursor: until };
    return this.#target.transport.json({ ...this.#sent('POST /records/prune/estimate'), body, ...call });
  }

  #page(query: Record<string, unknown>, call: CallOptions): Promise<RecordPage<T, B>> {
    const whole = { ...this.#dataset(), ...query };
    return this.#target.transport.json({ ...this.#sent('GET /records'), query: whole, ...call });
  }

  async #lastCursor(call: CallOptions): Promise<string | null> {
    const sent = { ...this.#sent('GET /records/datasets'), ...call };
    const { datasets } = await this.#target.transport.json<Answer<'GET /records/datasets'>>(sent);
    const isOwn = (one: { model: string; variant: string }) =>
      one.model === this.model && one.variant === this.variant;
    return datasets.find(isOwn)?.last_cursor ?? null;
  }

  #dataset(): Pick<Query<'GET /records'>, 'model' | 'variant'> {
    return { model: this.model, variant: this.variant };
  }

  #headers(): Record<string, string> {
    return { 'connection-id': this.#target.connectionId, 'integration-id': this.#target.integration };
  }

  #sent(route: string): Pick<Sent, 'route' | 'headers'> {
    return { route, headers: this.#headers() };
  }
}

/**
 * Yields the records of an export, one per line. Only the last line (`endKey`) proves that the export is complete: without it
 * throws `export_cut_off`, whatever the cause.
 */
async function* exportedRecords<R>(
  open: () => Promise<Response>,
  { endKey, signal }: { endKey: string; signal: AbortSignal | undefined },
): AsyncGenerator<R, void, undefined> {
  const { body } = await open();
  let isComplete = false;
  let cause: unknown;
  try {
    for await (const line of linesOf(body)) {
      const value = JSON.parse(line) as Record<string, unknown>;
      // A record may have a field of this name, but it also has an `id`.
      if (endKey in value && !('id' in value)) isComplete = true;
      else yield value as R;
    }
  } catch (error) {
    cause = error;
  }
  if (signal?.aborted) throw signal.reason;
  if (cause !== undefined || !isComplete) {
    const message = 'The export ended without its last line. Continue from the cursor of the last record.';
    throw new TrellisError({ code: 'export_cut_off', message, cause });
  }
}

async function* linesOf(body: ReadableStream<Uint8Array> | null): AsyncGenerator<string, void, undefined> {
  if (body === null) return;
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + decoder.decode(value, { stream: true })).split('\n');
      rest = lines.pop() ?? '';
      yield* lines.filter((line) => line !== '');
    }
    if (rest !== '') yield rest;
  } finally {
    // Also ends the request when the consumer stops early.
    await reader.cancel().catch(() => {});
  }
}
