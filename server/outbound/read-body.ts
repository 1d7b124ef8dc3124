/**
 * Reads a response body up to `maxBytes`. If it has more bytes, `isTooLarge` is set, `bytes` are the beginning, and the
 * rest is not read. Throws if the body breaks off.
 */
export async function readBody(
  body: AsyncIterable<Uint8Array> | null,
  maxBytes: number,
): Promise<{ bytes: Buffer; isTooLarge: boolean }> {
  const chunks: Uint8Array[] = [];
  let sizeBytes = 0;
  for await (const chunk of body ?? []) {
    chunks.push(chunk);
    sizeBytes += chunk.length;
    if (sizeBytes > maxBytes) break;
  }
  return { bytes: Buffer.concat(chunks).subarray(0, maxBytes), isTooLarge: sizeBytes > maxBytes };
}
