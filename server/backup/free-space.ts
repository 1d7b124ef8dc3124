import { statfs } from 'node:fs/promises';

/** Beside the files of a cluster: WAL of the time in which they are copied, and of the server that works on the copy. */
const forWalBytes = 128 * 1024 ** 2;

/**
 * Throws, with the missing size, if the disk of `dir` has too little space for a cluster of about `bytes`. `what` needs
 * the space (`the backup`). Checks the disk alone: a quota of the user is not detected.
 */
export async function requireFreeSpace(
  dir: string,
  { bytes, what }: { bytes: number; what: string },
): Promise<void> {
  const { bavail, bsize } = await statfs(dir);
  const [needed, free] = [bytes + forWalBytes, bavail * bsize];
  if (needed <= free) return;
  throw new Error(
    `${what} takes about ${megabytes(needed)}, and ${dir} has ${megabytes(free)} free: ${megabytes(needed - free)} are ` +
      'missing; free space, or name a directory on another disk',
  );
}

function megabytes(bytes: number): string {
  return `${Math.ceil(bytes / 1024 ** 2)} MB`;
}
