import { TrellisError } from './errors.ts';

/**
 * The records of an export, a line each. The last line alone says that it is whole (`endKey`): throws `export_cut_off`
 * where that is missing, whatever broke.
 */
export async function* exported<R>(
  open: () => Promise<Response>,
  { endKey, signal }: { endKey: string; signal: AbortSignal | undefined },
): AsyncGenerator<R, void, undefined> {
  const { body } = await open();
  let isWhole = false;
  let cause: unknown;
  try {
    for await (const line of linesOf(body)) {
      const value = JSON.parse(line) as Record<string, unknown>;
      // A record may have a field of that name, but not without an id.
      if (endKey in value && !('id' in value)) isWhole = true;
      else yield value as R;
    }
  } catch (error) {
    cause = error;
  }
  if (signal?.aborted) throw signal.reason;
  if (cause !== undefined || !isWhole) {
    const message = 'The export ended without its last line: go on from the cursor of the last record.';
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
    // A consumer that stops early also stops the service's reading.
    await reader.cancel().catch(() => {});
  }
}
