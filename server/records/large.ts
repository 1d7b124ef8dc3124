/**
 * The C library gives larger pieces back to the system when they are freed. But it takes the largest that was ever freed
 * for ordinary from then on, and keeps as much and more (glibc, "M_MMAP_THRESHOLD"): after one body of 10 MB some 50 MB
 * stay with the process.
 */
const ordinaryBytes = 2 * 1024 * 1024;

/**
 * Memory for bytes that are many and soon let go of. What is larger than ordinary is a resizable buffer, which has pages
 * of its own: they cost 3 microseconds per KB, which only large calls pay.
 */
export function reserve(bytes: number): Buffer<ArrayBuffer> {
  if (bytes < ordinaryBytes) return Buffer.allocUnsafeSlow(bytes) as Buffer<ArrayBuffer>;
  return Buffer.from(new ArrayBuffer(bytes, { maxByteLength: bytes }));
}

/** Gives it back now, not when it is collected. The bytes must be all of their buffer, and are gone. */
export function letGo(bytes: Uint8Array<ArrayBuffer>): void {
  bytes.buffer.transferToFixedLength(0);
}
