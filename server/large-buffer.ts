/**
 * The C library returns a larger block to the system when it is freed. But then it treats the size of the largest freed
 * block as ordinary, and keeps that much memory and more (glibc, "M_MMAP_THRESHOLD"): after one body of 10 MB, the
 * process keeps about 50 MB.
 */
const ordinaryBytes = 2 * 1024 * 1024;

/** To free a smaller buffer costs more than it gains. */
const largeBytes = 256 * 1024;

/**
 * Allocates memory that is freed soon. Above `ordinaryBytes` it is a resizable buffer, which has pages of its own: they
 * cost 3 microseconds per KB, and only large calls pay this.
 */
export function reserve(bytes: number): Buffer<ArrayBuffer> {
  if (bytes < ordinaryBytes) return Buffer.allocUnsafeSlow(bytes) as Buffer<ArrayBuffer>;
  return Buffer.from(new ArrayBuffer(bytes, { maxByteLength: bytes }));
}

/**
 * Frees the memory at once, not at garbage collection. `bytes` must cover the whole buffer and is unusable afterwards.
 */
export function freeBytes(bytes: Uint8Array<ArrayBuffer>): void {
  bytes.buffer.transferToFixedLength(0);
}

/** As `freeBytes`, but leaves a small buffer, or one that shares its memory, to the garbage collector. */
export function freeIfLarge(bytes: Buffer): void {
  if (bytes.length >= largeBytes && bytes.length === bytes.buffer.byteLength) {
    freeBytes(bytes as Buffer<ArrayBuffer>);
  }
}
