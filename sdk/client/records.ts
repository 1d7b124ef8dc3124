import { exported } from './export.ts';
import { type Batch, type FollowOptions, follow } from './follow.ts';
import { Paged } from './paged.ts';
import type { Answer, Body, CallOptions, Query } from './route-call.ts';
import type { Sent, Transport } from './transport.ts';

/** What the service says of a record beside what is in it: when it changed, how, and its `cursor`. */
export type RecordMetadata = Answer<'GET /records'>['records'][number]['_trellis_metadata'];

/**
 * A record as it is read: what was saved, its `id` as text, and its metadata below `_trellis_metadata` (the word in it is
 * the service's brand). A pruned one has nothing of what was saved, so each field may be undefined; `pruned_at` tells.
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

/** A record as it is saved. */
export type NewRecord<T> = Omit<T, 'id'> & { id: string | number };
/** Some fields of a record. */
export type PartialRecord<T> = Partial<Omit<T, 'id'>> & { id: string | number };

export type ListOptions = Pick<CallOptions, 'signal'> & {
  /** Only what changed after this position. */
  cursor?: string | undefined;
  /** Whether a cursor from before the dataset was emptied is refused as `cursor_expired`; else it is good. */
  unlessEmptied?: boolean | undefined;
  /** Only records whose last change is one of these. */
  filter?: readonly ('added' | 'updated' | 'deleted')[] | undefined;
  /** Only these, at most 100; of none there is an empty page, and nothing is asked. */
  ids?: readonly string[] | undefined;
  /** Only what changed at or after this time. */
  modifiedAfter?: Date | string | undefined;
  /** Also what the last change of each record changed, in its metadata. */
  changes?: boolean | undefined;
  /** How many are asked for at a time, 1 to 10,000; 1,000 unless said otherwise. */
  pageSize?: number | undefined;
};

export type SaveOptions = CallOptions & Omit<Body<'POST /records'>, 'model' | 'variant' | 'records'>;

/** How far a prune is. */
export type PruneProgress = {
  /** Payloads that are gone by now. */
  pruned: number;
  /** How many there were to go when it began. */
  total: number;
};
export type PruneOptions = Pick<CallOptions, 'signal'> & {
  /** A cursor: everything up to and including this position. */
  until: string;
  /** Payloads a call, 1 to 10,000; 1,000 unless said otherwise. */
  batchSize?: number | undefined;
  /** Called behind each call. Where it is given, how many there are is asked first. */
  onProgress?: ((progress: PruneProgress) => void) | undefined;
};

/** What a handle of records needs to know of its connection. */
export type RecordsPlace = {
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
 * `T` is what your program takes the records for; the service does not check it.
 */
export class Records<T extends object = Record<string, unknown>, B extends string = 'trellis'> {
  readonly model: string;
  /** `base` where none was named. */
  readonly variant: string;
  readonly #place: RecordsPlace;

  /** @internal */
  constructor(place: RecordsPlace) {
    this.model = place.model;
    this.variant = place.variant ?? 'base';
    this.#place = place;
  }

  /**
   * All records in the order of their last changes, tombstones included, page by page as they are asked for. A record that
   * changes meanwhile comes at its new place, so that it may come twice, its later state last.
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
        // On the way an empty list is none, which narrows nothing.
        if (ids?.length === 0) return yield { records: [], next_cursor: null };
        for (let cursor = from; ; ) {
          const got = await page(cursor);
          yield got;
          if (got.next_cursor === null) return;
          cursor = got.next_cursor;
        }
      },
      ({ records }) => records,
    );
  }

  /** One page of at most `limit` records behind a cursor. */
  page(
    options: Pick<ListOptions, 'cursor' | 'unlessEmptied'> & {
      limit?: number | undefined;
    } & CallOptions = {},
  ): Promise<RecordPage<T, B>> {
    const { cursor, unlessEmptied, limit, ...call } = options;
    return this.#page({ cursor, unless_emptied: unlessEmptied, limit }, call);
  }

  /**
   * Every change from where the named consumer stands, now and as they come, in batches:
   *
   * ```ts
   * for await (const { records } of cities.follow({ consumer: 'billing' })) await store(records);
   * ```
   *
   * The service keeps the consumer's position. It is moved behind a batch once you ask for the next one, so a batch that was
   * cut off comes again: each change comes at least once, in order. Outages are waited for.
   *
   * Throws `cursor_expired` where a retention policy has removed deletions that the consumer had not seen, or the dataset was
   * emptied since, unless `onExpired` is `'restart'`; `cursor_behind_consumer` where somebody else follows under the same name;
   * the signal's reason.
   */
  follow(options: FollowOptions): AsyncGenerator<Batch<T, B>, void, undefined> {
    const { transport, brand } = this.#place;
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
        lastCursor: async (call) => (await this.#facts(call))?.last_cursor ?? null,
      },
      options,
    );
  }

  /**
   * All records behind a cursor as one stream, in cursor order: for many of them the cheapest way. Throws `export_cut_off`
   * where it did not come to its end; go on from the cursor of the last record, or begin again.
   */
  export(
    options: Pick<ListOptions, 'cursor' | 'unlessEmptied' | 'signal'> = {},
  ): AsyncGenerator<StoredRecord<T, B>, void, undefined> {
    const { cursor, unlessEmptied, signal } = options;
    const { transport, brand } = this.#place;
    const query = { ...this.#dataset(), cursor, unless_emptied: unlessEmptied };
    const open = () =>
      transport.raw({
        ...this.#sent('GET /records/export'),
        ...{ query, signal },
        headers: { ...this.#headers(), accept: 'application/x-ndjson' },
      });
    return exported<StoredRecord<T, B>>(open, { endKey: `_${brand}_export`, signal });
  }

  /** Saves up to 10,000 records, 32 MB together, in one transaction. Equal ones are not written. */
  save(
    records: readonly NewRecord<T>[],
    { signal, timeoutMs, retries, ...options }: SaveOptions = {},
  ): Promise<Answer<'POST /records'>> {
    const body = { ...this.#dataset(), records, ...options };
    const call = { signal, timeoutMs, retries };
    return this.#place.transport.json({ ...this.#sent('POST /records'), body, ...call });
  }

  /** Merges parts into what is stored. Ids that are missing, deleted or pruned are named in the answer. */
  update(parts: readonly PartialRecord<T>[], call: CallOptions = {}): Promise<Answer<'PATCH /records'>> {
    const body = { ...this.#dataset(), records: parts };
    return this.#place.transport.json({ ...this.#sent('PATCH /records'), body, ...call });
  }

  /** Makes tombstones of up to 10,000 records. Nothing is deleted at the provider. */
  delete(ids: readonly (string | number)[], call: CallOptions = {}): Promise<Answer<'POST /records/delete'>> {
    const body = { ...this.#dataset(), ids };
    return this.#place.transport.json({ ...this.#sent('POST /records/delete'), body, ...call });
  }

  /**
   * Lets the payloads up to a cursor go, call after call until there are none, and tells how many went. Ids, metadata and
   * cursors stay. Ended half-way, it has done what `onProgress` has told; the same call goes on.
   */
  async prune(options: PruneOptions): Promise<{ count: number }> {
    const { until, batchSize, onProgress, signal } = options;
    const total = onProgress && (await this.estimate({ until, signal })).count;
    const body = { ...this.#dataset(), until_cursor: until, limit: batchSize };
    let pruned = 0;
    for (;;) {
      const { count, has_more } = await this.#place.transport.json<Answer<'PATCH /records/prune'>>({
        ...this.#sent('PATCH /records/prune'),
        ...{ body, signal },
      });
      pruned += count;
      onProgress?.({ pruned, total: Math.max(total ?? 0, pruned) });
      if (!has_more) return { count: pruned };
    }
  }

  /** `prune` up to where a consumer stands. Throws `not_found` where nobody is called that. */
  async pruneConsumed(
    consumer: string,
    options: Omit<PruneOptions, 'until'> = {},
  ): Promise<{ count: number }> {
    const { cursor } = await this.consumer(consumer, { signal: options.signal });
    return cursor === null ? { count: 0 } : this.prune({ ...options, until: cursor });
  }

  /** Where a consumer stands, and how many records it is behind. Throws `not_found`. */
  consumer(name: string, call: CallOptions = {}): Promise<Answer<'GET /records/consumers/{name}'>> {
    const sent = { ...this.#sent('GET /records/consumers/{name}'), path: { name } };
    return this.#place.transport.json({ ...sent, query: this.#dataset(), ...call });
  }

  /** What a prune up to a cursor would remove. */
  estimate({
    until,
    ...call
  }: { until: string } & CallOptions): Promise<Answer<'POST /records/prune/estimate'>> {
    const body = { ...this.#dataset(), until_cursor: until };
    return this.#place.transport.json({ ...this.#sent('POST /records/prune/estimate'), body, ...call });
  }

  #page(query: Record<string, unknown>, call: CallOptions): Promise<RecordPage<T, B>> {
    const whole = { ...this.#dataset(), ...query };
    return this.#place.transport.json({ ...this.#sent('GET /records'), query: whole, ...call });
  }

  async #facts(call: CallOptions) {
    const sent = { ...this.#sent('GET /records/datasets'), ...call };
    const { datasets } = await this.#place.transport.json<Answer<'GET /records/datasets'>>(sent);
    return datasets.find(({ model, variant }) => model === this.model && variant === this.variant);
  }

  #dataset(): Pick<Query<'GET /records'>, 'model' | 'variant'> {
    return { model: this.model, variant: this.variant };
  }

  #headers(): Record<string, string> {
    return { 'connection-id': this.#place.connectionId, 'provider-config-key': this.#place.integration };
  }

  #sent(route: string): Pick<Sent, 'route' | 'headers'> {
    return { route, headers: this.#headers() };
  }
}
