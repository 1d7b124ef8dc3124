/** What the process gives the harness: see `server/functions/isolation/inside.ts`. */
export type Service = {
  ask(
    name: string,
    args: unknown,
    body?: Iterable<unknown> | AsyncIterable<unknown>,
  ): Promise<{ value: unknown; body?: AsyncIterable<Uint8Array> }>;
  log(level: string, text: unknown): void;
  signal: AbortSignal;
};

/** What the service tells of the run. */
export type About = {
  connectionId: string;
  providerConfigKey: string;
  provider: string;
  environmentName: string;
  variant: string;
  /** ISO 8601. */
  lastSyncDate?: string;
  /** The sync's code ends delete tracking with `deleteRecordsFromPreviousExecutions`, and begins none. */
  deletesByRun?: boolean;
  /** The definition's word on pages. */
  paginate?: Record<string, unknown>;
};

/** All of a stream as bytes. */
export async function bytesOf(body: AsyncIterable<Uint8Array> | undefined): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  if (body !== undefined) for await (const part of body) parts.push(part);
  return Buffer.concat(parts);
}
