/** The context of `exec`. Each call goes to the service, which determines the connection by the run. */
import type { z } from 'zod';
import type { Models } from './definitions.ts';
import type { ProxyConfiguration, ProxyResponse } from './http.ts';

/** A provider's response has no known type, and existing functions read it without a check. */
// biome-ignore lint/suspicious/noExplicitAny: as above
export type Loose = any;

export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

/** A checkpoint is flat and has at most 16 fields. Dates become strings. */
export type CheckpointValue = string | number | boolean;

export interface Context<Metadata = Record<string, unknown>, Checkpoint = Record<string, unknown>> {
  readonly connectionId: string;
  readonly providerConfigKey: string;
  readonly provider: string;
  readonly environmentName: string;
  /** `base`, or the variant of the sync. */
  readonly variant: string;
  getVariant(): string;
  /** Aborts when the run must end. Long operations should check it. */
  readonly signal: AbortSignal;

  get<T = Loose>(config: ProxyConfiguration): Promise<ProxyResponse<T>>;
  post<T = Loose>(config: ProxyConfiguration): Promise<ProxyResponse<T>>;
  put<T = Loose>(config: ProxyConfiguration): Promise<ProxyResponse<T>>;
  patch<T = Loose>(config: ProxyConfiguration): Promise<ProxyResponse<T>>;
  delete<T = Loose>(config: ProxyConfiguration): Promise<ProxyResponse<T>>;
  proxy<T = Loose>(config: ProxyConfiguration): Promise<ProxyResponse<T>>;
  /** A list for each page. The provider's definition has the defaults of `config.paginate`. */
  paginate<T = Loose>(config: ProxyConfiguration): AsyncGenerator<T[], undefined, void>;
  /** Without credentials and retries; private addresses are refused. */
  uncontrolledFetch(request: {
    url: URL;
    method?: string;
    headers?: Record<string, string>;
    body?: string | null;
  }): Promise<FetchResponse & Response>;

  /** The connection of the run. Another one throws `other_connection`. */
  getConnection(
    providerConfigKey?: string,
    connectionId?: string,
    options?: RenewalOptions,
  ): Promise<ConnectionView>;
  /** Always includes `webhook_url`. `credentials` throws `not_told_to_functions`. */
  getIntegration(parts?: { include?: IntegrationParts | IntegrationParts[] }): Promise<IntegrationView>;
  /** The access token, `{ oAuthToken, oAuthTokenSecret }` of OAuth 1.0a, or the credentials of other auth modes. */
  getToken(): Promise<string | Record<string, Loose>>;
  getEnvironmentVariables(): Promise<{ name: string; value: string }[]>;
  getWebhookURL(): Promise<string | null>;

  getMetadata<T = Metadata>(): Promise<T>;
  /** Replaces the metadata. */
  setMetadata(metadata: Metadata): Promise<MetadataAnswer>;
  /** Replaces the given top-level fields. */
  updateMetadata(metadata: Partial<Metadata>): Promise<MetadataAnswer>;

  getCheckpoint(): Promise<Checkpoint | null>;
  /** If the run must stop, throws after the checkpoint is stored: the next run continues there. */
  saveCheckpoint(checkpoint: Checkpoint): Promise<void>;
  clearCheckpoint(): Promise<void>;

  /**
   * The state of this function for this connection and variant; null if there is none. A reset that keeps the records keeps it.
   * With `of`, the state of another sync of the integration.
   */
  getState(of?: { sync: string; variant?: string }): Promise<string | null>;
  /** Replaces the state. The maximum is 64 MB. */
  saveState(state: string): Promise<void>;

  /** The message, more values, and a level, which defaults to `info`. */
  log(message: unknown, ...more: unknown[]): Promise<void>;

  /** Locks a key of the environment until the run releases it, ends, or `ttlMs` is over. True again for the same run. */
  tryAcquireLock(lock: { key: string; ttlMs: number }): Promise<boolean>;
  releaseLock(lock: { key: string }): Promise<boolean>;
  releaseAllLocks(): Promise<void>;

  /** Thrown in an action, it returns its payload to the caller of the action. */
  readonly ActionError: ActionErrorClass;
  /** Throws an ActionError with all faults. */
  zodValidateInput<S extends z.ZodType>(given: {
    zodSchema: S;
    input: unknown;
  }): Promise<{ success: true; data: z.infer<S> }>;
}

type ActionErrorClass = new <Payload = Record<string, unknown>>(
  payload?: Payload | string,
) => Error & { type: string; payload: unknown };

export interface SyncContext<
  M extends Models = Models,
  Metadata = Record<string, unknown>,
  Checkpoint = Record<string, unknown>,
> extends Context<Metadata, Checkpoint> {
  /** @deprecated The time of the last success. Use a checkpoint. */
  readonly lastSyncDate: Date | undefined;
  batchSave<N extends keyof M & string>(records: z.input<M[N]>[], model: N): Promise<true>;
  /** Merges into stored records, and skips IDs that do not exist. */
  batchUpdate<N extends keyof M & string>(
    records: (Partial<z.input<M[N]>> & { id: string })[],
    model: N,
  ): Promise<true>;
  batchDelete<N extends keyof M & string>(records: { id: string }[], model: N): Promise<true>;
  /** The end deletes the records that were not saved since the start, which may be in an earlier run. */
  trackDeletesStart(model: keyof M & string): Promise<void>;
  trackDeletesEnd(model: keyof M & string): Promise<{ deletedKeys: string[] }>;
  /**
   * Deletes the records that this run did not save. Deletes nothing, with a line in the log, if the run began at a checkpoint
   * and saves before it were not tracked.
   *
   * @deprecated `trackDeletesStart` and `trackDeletesEnd`.
   */
  deleteRecordsFromPreviousExecutions(model: keyof M & string): Promise<{ deletedKeys: string[] }>;
  /** The records by the given IDs, without those that do not exist. */
  getRecordsByIds<N extends keyof M & string, Id extends string | number = string>(
    ids: Id[],
    model: N,
  ): Promise<Map<Id, z.infer<M[N]>>>;
  listRecords<N extends keyof M & string>(
    model: N,
    options?: { cursor?: string },
  ): AsyncGenerator<z.infer<M[N]>, undefined, void>;
  /** Reports that the provider's fields of a model have changed, by the event `sync.schema_changed`. */
  schemaChanged(
    model: keyof M & string,
    changes: { change: 'added' | 'removed' | 'renamed' | 'moved'; field: string; previous?: string }[],
  ): Promise<void>;
  /** Call it once for a model in a run, before its first save. */
  setMergingStrategy(
    strategy: { strategy: 'override' | 'ignore_if_modified_after' },
    model: keyof M & string,
  ): Promise<void>;
}

export interface ActionContext<Metadata = Record<string, unknown>, Checkpoint = Record<string, unknown>>
  extends Context<Metadata, Checkpoint> {
  /** Records that a sync of the integration saved for this connection, with their metadata. Skips IDs that do not exist. */
  getStoredRecords<T = Record<string, Loose>>(of: {
    model: string;
    variant?: string;
    ids: string[];
  }): Promise<{ record: T; metadata: RecordMetadata }[]>;
}

export type EventContext<
  Metadata = Record<string, unknown>,
  Checkpoint = Record<string, unknown>,
> = ActionContext<Metadata, Checkpoint>;

/** The metadata of a record, as in the API. */
export type RecordMetadata = {
  first_seen_at: string;
  last_modified_at: string;
  last_action: 'ADDED' | 'UPDATED' | 'DELETED';
  deleted_at: string | null;
  pruned_at: string | null;
  cursor: string;
};

/** The connection for a function, with fresh credentials. */
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
  /** Refreshes the token in any case. */
  forceRefresh?: boolean;
  /** True throws `not_told_to_functions`: a function does not get refresh tokens. */
  refreshToken?: boolean;
  /** Ignored: no provider has such tokens. */
  refreshGithubAppJwtToken?: boolean;
};

export type IntegrationParts = 'webhook' | 'credentials';

/** The integration for a function. */
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

/** `data` has the given metadata and the connection. */
export type MetadataAnswer = ProxyResponse<{
  connection_id: string;
  provider_config_key: string;
  metadata: Record<string, unknown>;
}>;

/** The supported part of a fetch Response. */
export type FetchResponse = {
  ok: boolean;
  status: number;
  statusText: string;
  url: string;
  redirected: boolean;
  headers: FetchedHeaders;
  /** The stream of the body; null if there is no body. */
  body: FetchedBody | null;
  bodyUsed: boolean;
  text(): Promise<string>;
  json(): Promise<Loose>;
  arrayBuffer(): Promise<ArrayBuffer>;
  bytes(): Promise<Uint8Array>;
  blob(): Promise<Blob>;
  formData(): Promise<FormData>;
  /** Throws a TypeError if the body was read as a stream. Clones keep the body in memory. */
  clone(): FetchResponse & Response;
};

/** The reading part of Headers. */
export type FetchedHeaders = Iterable<[string, string]> & {
  get(name: string): string | null;
  has(name: string): boolean;
  entries(): IterableIterator<[string, string]>;
  keys(): IterableIterator<string>;
  values(): IterableIterator<string>;
  forEach(each: (value: string, name: string, headers: FetchedHeaders) => void): void;
};

/** The reading part of a ReadableStream. */
export type FetchedBody = AsyncIterable<Uint8Array> & {
  getReader(): {
    read(): Promise<{ done: boolean; value?: Uint8Array | undefined }>;
    cancel(): Promise<void>;
    releaseLock(): void;
  };
  cancel(): Promise<void>;
};
