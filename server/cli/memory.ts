/**
 * How the process keeps its memory, all of it read once when it begins:
 *
 * - V8's young generation stays at 8 MB, else it grows to 64 under load, and as many buffers wait to be collected with
 *   it. The old one is collected when it has doubled, not when it is four times as large. Pages that a collection has
 *   emptied go back at once, not after 8 s.
 * - glibc keeps what is freed in an arena for each thread, and all below a threshold that it raises to the largest piece
 *   it has seen, 10 MB after one large save. One arena and a fixed threshold give it back. Other C libraries take no
 *   notice.
 *
 * What each gives and costs: docs/decisions/0009.
 */
const flags = ['--max-semi-space-size=4', '--memory-pool-timeout=0', '--heap-growing-percent=100'];
const settings = {
  MALLOC_ARENA_MAX: '1',
  MALLOC_MMAP_THRESHOLD_: '1048576',
  MALLOC_TRIM_THRESHOLD_: '8388608',
};

/**
 * Starts this command anew, in the same process and with the same arguments, so that it keeps its memory small; returns
 * where that is so already, where the operator has set MALLOC_ARENA_MAX, where a parent watches this process through a
 * channel that would be lost, and on systems that cannot. To be called before anything is open.
 */
export function restartWithSmallMemory(): void {
  const { env, execPath, execArgv, argv } = process;
  if (env.MALLOC_ARENA_MAX !== undefined || process.send !== undefined) return;
  process.execve?.(execPath, [execPath, ...flags, ...execArgv, ...argv.slice(1)], { ...env, ...settings });
}
