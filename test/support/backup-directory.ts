import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Keeps JSON that no longer fits into memory, in a file that has no name and is gone with the process. */
export function openBackupDirectory<T>() {
  let file: number | undefined;
  let end = 0;
  const places: { at: number; length: number }[] = [];
  const open = () => {
    const directory = mkdtempSync(join(tmpdir(), 'trellis-watch-'));
    const opened = openSync(join(directory, 'held'), 'wx+', 0o600);
    // Open, it lives on without a name, and is gone with the process.
    rmSync(directory, { recursive: true });
    return opened;
  };
  return {
    put(value: T): void {
      file ??= open();
      const bytes = Buffer.from(JSON.stringify(value));
      for (let written = 0; written < bytes.length; )
        written += writeSync(file, bytes, written, bytes.length - written, end + written);
      places.push({ at: end, length: bytes.length });
      end += bytes.length;
    },
    /** What was put, one after the other, in that order. */
    *all(): Iterable<T> {
      for (const { at, length } of places) {
        const bytes = Buffer.alloc(length);
        for (let read = 0; read < length; ) read += readSync(file!, bytes, read, length - read, at + read);
        yield JSON.parse(bytes.toString()) as T;
      }
    },
    close(): void {
      if (file !== undefined) closeSync(file);
      file = undefined;
      places.length = 0;
    },
  };
}
