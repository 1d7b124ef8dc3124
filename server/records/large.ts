/**
 * The C library gives larger pieces back to the system when they are freed. But it takes the largest that was ever freed
 * for ordinary from then on, and keeps as much and more (glibc, "M_MMAP_THRESHOLD"): after one body of 10 MB some 50 MB
 * stay with the process.
 */
const ordinaryBytes = 2 * 1024 * 1024;

/**
 * Memory for many bytes that are soon freed. Above `ordinaryBytes` it is a resizable buffer, which has pages of its own:
 * they cost 3 microseconds per KB, and only large calls pay this.
 */
export function reserve(bytes: number): Buffer<ArrayBuffer> {
  if (bytes < ordinaryBytes) return Buffer.allocUnsafeSlow(bytes) as Buffer<ArrayBuffer>;
  return Buffer.from(new ArrayBuffer(bytes, { maxByteLength: bytes }));
}

/** Frees the memory at once, not at garbage collection. `bytes` must cover the whole buffer and is unusable afterwards. */
export function freeBytes(bytes: Uint8Array<ArrayBuffer>): void {
  bytes.buffer.transferToFixedLength(0);
}
