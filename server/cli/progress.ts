import type { WriteStream } from 'node:tty';

/** Plain lines follow each other no faster than this. */
const lineMs = 2_000;

type Progress = { show(text: string): void; end(): void };

/** On a terminal one line that changes; elsewhere a line now and then, the first at once. */
export function createProgress(
  out: Pick<WriteStream, 'write'> & { isTTY?: boolean },
  now: () => number = () => performance.now(),
): Progress {
  let nextAt = 0;
  let isOpen = false;
  return {
    show(text) {
      if (out.isTTY) {
        out.write(`\r\x1b[K${text}`);
        isOpen = true;
      } else if (now() >= nextAt) {
        out.write(`${text}\n`);
        nextAt = now() + lineMs;
      }
    },
    end() {
      if (isOpen) out.write('\n');
      isOpen = false;
    },
  };
}
