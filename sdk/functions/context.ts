/** What `exec` is given. Each call goes to the service, which knows by itself whose connection this run is for. */
import type { z } from 'zod';
import type { Models } from './definitions.ts';
import type { ProxyConfiguration, ProxyResponse } from './http.ts';

/** What a provider answers is not known here, and existing functions read it without a check. */
// biome-ignore lint/suspicious/noExplicitAny: as said
export type Loose = any;

export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

/** Flat, at most 16 fields; dates become text. */
export type CheckpointValue = string | number | boolean;

export interface Context<Metadata = Record<string, unknown>, Checkpoint = Record<string, unknown>> {
  readonly connectionId: string;
  readonly providerConfigKey: string;
  readonly provider: string;
  readonly environmentName: string;
  /** `base` unless the sync runs for another one. */
  readonly variant: string;
  getVariant(): string;
  /** Ends when the run is to end. What takes long should look at it. */
  readonly signal: AbortSignal;

  get<T = Loose>(config: ProxyConfiguration): Promise<ProxyResponse<T>>;
  post<T = Loose>(config: ProxyConfiguration): Promise<ProxyResponse<T>>;
  put<T = Loose>(config: ProxyConfiguration): Promise<ProxyResponse<T>>;
  patch<T = Loose>(config: ProxyConfiguration): Promise<ProxyResponse<T>>;
  delete<T = Loose>(config: ProxyConfiguration): Promise<ProxyResponse<T>>;
  proxy<T = Loose>(config: ProxyConfiguration): Promise<ProxyResponse<T>>;
  /** A list for each page. What `config.paginate` leaves out is taken from the provider's definition. */
  paginate<T = Loose>(config: ProxyConfiguration): AsyncGenerator<T[], undefined, void>;
  /** Without credentials and retries; private addresses are refused. */
  uncontrolledFetch(request: {
    url: URL;
    method?: string;
    headers?: Record<string, string>;
    body?: string | null;
  }): Promise<FetchResponse>;

  /** The run's own; another one that is named is refused with `other_connection`. */
  getConnection(
    providerConfigKey?: string,
    connectionId?: string,
    options?: RenewalOptions,
  ): Promise<ConnectionView>;
  /** `webhook_url` is there in any case; `credentials` are refused with `not_told_to_functions`. */
  getIntegration(parts?: { include?: IntegrationParts | IntegrationParts[] }): Promise<IntegrationView>;
  /** The access token, or whatever the connection's auth mode has in its place. */
  getToken(): Promise<unknown>;
  getEnvironmentVariables(): Promise<{ name: string; value: string }[]>;
  getWebhookURL(): Promise<string | null>;

  getMetadata<T = Metadata>(): Promise<T>;
  /** In place of what is there. */
  setMetadata(metadata: Metadata): Promise<MetadataAnswer>;
  /** Replaces the fields that are named, at the top level. */
  updateMetadata(metadata: Partial<Metadata>): Promise<MetadataAnswer>;

  getCheckpoint(): Promise<Checkpoint | null>;
  /** Throws, after it is stored, where the run is to stop: the next one goes on from there. */
  saveCheckpoint(checkpoint: Checkpoint): Promise<void>;
  clearCheckpoint(): Promise<void>;

  /**
   * What this function wrote down for this connection and variant, null where it has not. It outlives a reset that keeps the
   * records. With `of` that of a sync of the same integration, to be read.
   */
  getState(of?: { sync: string; variant?: string }): Promise<string | null>;
  /** In place of what is there; up to 64 MB. */
  saveState(state: string): Promise<void>;

  /** Text, anything else to show with it, and a level (`info` unless given). */
  log(message: unknown, ...more: unknown[]): Promise<void>;

  /** For this environment; this run has it until it releases it, ends, or `ttlMs` has passed. Again by the same run: true. */
  tryAcquireLock(lock: { key: string; ttlMs: number }): Promise<boolean>;
  releaseLock(lock: { key: string }): Promise<boolean>;
  releaseAllLocks(): Promise<void>;
}

export interface SyncContext<
  M extends Models = Models,
  Metadata = Record<string, unknown>,
  Checkpoint = Record<string, unknown>,
> extends Context<Metadata, Checkpoint> {
  /** @deprecated When the sync last succeeded; a checkpoint says more. */
  readonly lastSyncDate: Date | undefined;
  batchSave<N extends keyof M & string>(records: z.input<M[N]>[], model: N): Promise<true>;
  /** Merges into what is stored; ids that are not there are left out. */
  batchUpdate<N extends keyof M & string>(
    records: (Partial<z.input<M[N]>> & { id: string })[],
    model: N,
  ): Promise<true>;
  batchDelete<N extends keyof M & string>(records: { id: string }[], model: N): Promise<true>;
  /** What is not saved between the two is deleted by the second, however many runs lie between. */
  trackDeletesStart(model: keyof M & string): Promise<void>;
  trackDeletesEnd(model: keyof M & string): Promise<{ deletedKeys: string[] }>;
  /**
   * What this run did not save is deleted. Nothing is where the run went on from a checkpoint before which saves were not
   * tracked: its log says so.
   *
   * @deprecated `trackDeletesStart` and `trackDeletesEnd`.
   */
  deleteRecordsFromPreviousExecutions(model: keyof M & string): Promise<{ deletedKeys: string[] }>;
  /** By the ids as they were given; those that are not there are left out. */
  getRecordsByIds<N extends keyof M & string, Id extends string | number = string>(
    ids: Id[],
    model: N,
  ): Promise<Map<Id, z.infer<M[N]>>>;
  listRecords<N extends keyof M & string>(
    model: N,
    options?: { cursor?: string },
  ): AsyncGenerator<z.infer<M[N]>, undefined, void>;
  /** Tells the application that the provider's fields of a model have changed: the event `sync.schema_changed`. */
  schemaChanged(
    model: keyof M & string,
    changes: { change: 'added' | 'removed' | 'renamed' | 'moved'; field: string; previous?: string }[],
  ): Promise<void>;
  /** Once per model and run, before anything is saved. */
  setMergingStrategy(
    strategy: { strategy: 'override' | 'ignore_if_modified_after' },
    model: keyof M & string,
  ): Promise<void>;
}

export interface ActionContext<Metadata = Record<string, unknown>, Checkpoint = Record<string, unknown>>
  extends Context<Metadata, Checkpoint> {
  /** To be thrown: its payload is what the caller of the action gets. */
  readonly ActionError: new (
    payload?: Record<string, unknown>,
  ) => Error & { type: string; payload: unknown };
  /** Records that a sync of the integration saved for this connection, with their metadata; those that are not there are left out. */
  getStoredRecords<T = Record<string, Loose>>(of: {
    model: string;
    variant?: string;
    ids: string[];
  }): Promise<{ record: T; metadata: RecordMetadata }[]>;
  /** Throws an ActionError that names each fault. */
  zodValidateInput<S extends z.ZodType>(given: {
    zodSchema: S;
    input: unknown;
  }): Promise<{ success: true; data: z.infer<S> }>;
}

export type EventContext<
  Metadata = Record<string, unknown>,
  Checkpoint = Record<string, unknown>,
> = ActionContext<Metadata, Checkpoint>;

/** As the interface answers it with each record. */
export type RecordMetadata = {
  first_seen_at: string;
  last_modified_at: string;
  last_action: 'ADDED' | 'UPDATED' | 'DELETED';
  deleted_at: string | null;
  pruned_at: string | null;
  cursor: string;
};

/** What of a connection a function gets; credentials are fresh. */
export type ConnectionView = {
  connection_id: string;
  provider_config_key: string;
  metadata: Record<string, unknown> | null;
  connection_config: Record<string, Loose>;
  credentials: Record<string, Loose>;
  tags: Record<string, string>;
  end_user: Record<string, unknown> | null;
  errors: { type: 'auth' | 'sync'; log_id: string }[];
  webhook_url_override: string | null;
  created_at: string;
  updated_at: string;
  last_fetched_at: string | null;
  [field: string]: unknown;
};

export type RenewalOptions = {
  /** Renews the token first, whether or not it is time. */
  forceRefresh?: boolean;
  /** True is refused with `not_told_to_functions`: a function never gets what renews the token. */
  refreshToken?: boolean;
  /** Counts for nothing: no provider here has such tokens. */
  refreshGithubAppJwtToken?: boolean;
};

export type IntegrationParts = 'webhook' | 'credentials';

/** What of an integration a function gets. */
export type IntegrationView = {
  unique_key: string;
  provider: string;
  display_name: string;
  logo: string;
  forward_webhooks: boolean;
  webhook_url: string;
  integration_config: Record<string, string> | null;
  custom: Record<string, string> | null;
  created_at: string;
  updated_at: string;
  [field: string]: unknown;
};

/** `data` is what was given, and for which connection. */
export type MetadataAnswer = ProxyResponse<{
  connection_id: string;
  provider_config_key: string;
  metadata: Record<string, unknown>;
}>;

/** The part of a fetch Response that is there without fetch. */
export type FetchResponse = {
  ok: boolean;
  status: number;
  statusText: string;
  url: string;
  redirected: boolean;
  headers: FetchedHeaders;
  /** As it comes; null where an answer has none. */
  body: FetchedBody | null;
  bodyUsed: boolean;
  text(): Promise<string>;
  json(): Promise<Loose>;
  arrayBuffer(): Promise<ArrayBuffer>;
  bytes(): Promise<Uint8Array>;
  blob(): Promise<Blob>;
  /** Throws a TypeError where the body was read as it came. Of several, the body is kept in memory. */
  clone(): FetchResponse;
};

/** The part of Headers that reads them. */
export type FetchedHeaders = Iterable<[string, string]> & {
  get(name: string): string | null;
  has(name: string): boolean;
  entries(): IterableIterator<[string, string]>;
  keys(): IterableIterator<string>;
  values(): IterableIterator<string>;
  forEach(each: (value: string, name: string, headers: FetchedHeaders) => void): void;
};

/** The part of a ReadableStream that reads it: to its end, or until it is cancelled. */
export type FetchedBody = AsyncIterable<Uint8Array> & {
  getReader(): {
    read(): Promise<{ done: boolean; value?: Uint8Array | undefined }>;
    cancel(): Promise<void>;
    releaseLock(): void;
  };
  cancel(): Promise<void>;
};
