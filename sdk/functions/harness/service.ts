/** The service, as a harness gets it from `server/functions/isolation/inside.ts`. */
export type Service = {
  /** Rejects with an Error that has the refusal's `code`, `status` and `payload`. `body`: any iterable of bytes. */
  call(
    name: string,
    args: unknown,
    body?: Iterable<unknown> | AsyncIterable<unknown>,
  ): Promise<{ value: unknown; body?: AsyncIterable<Uint8Array> }>;
  log(level: string, text: unknown): void;
  signal: AbortSignal;
};

/** The facts of the run. */
export type About = {
  connectionId: string;
  providerConfigKey: string;
  provider: string;
  environmentName: string;
  variant: string;
  /** ISO 8601. */
  lastSyncDate?: string;
  /** The code ends delete tracking with `deleteRecordsFromPreviousExecutions`, and starts none. */
  deletesByRun?: boolean;
  /** The pagination of the provider's definition. */
  paginate?: Record<string, unknown>;
};

/** All of a stream as bytes. */
export async function bytesOf(body: AsyncIterable<Uint8Array> | undefined): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  if (body !== undefined) for await (const part of body) parts.push(part);
  return Buffer.concat(parts);
}
