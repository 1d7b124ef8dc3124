/**
 * How the process keeps its memory, all of it read once when it begins; what each gives and costs: docs/decisions/0009.
 *
 * - V8's young generation grows to 24 MB and no further, else to 48, and as many buffers wait to be collected with it. It
 *   is collected by the thread it belongs to: on few cores the others cost more than they carry.
 * - The old one is collected when it has doubled, not when it is four times as large. Pages that a collection has
 *   emptied go back at once, not after 8 s.
 * - `gc` is there to be called: the proxy does, where V8 would wait (docs/decisions/0014).
 * - glibc keeps what is freed in an arena for each thread: two in place of eight a core. Other C libraries take no
 *   notice.
 */
const flags = [
  '--max-semi-space-size=8',
  '--no-parallel-scavenge',
  '--heap-growing-percent=100',
  '--memory-pool-timeout=0',
  '--expose-gc',
];
const settings = { MALLOC_ARENA_MAX: '2' };

/**
 * Restarts this command, in the same process and with the same arguments, so that it keeps its memory small. Returns if
 * that is already so, if the operator has set MALLOC_ARENA_MAX, if a parent process uses a channel to this process that
 * would be lost, and on systems that cannot. Call it before anything is open.
 */
export function restartWithSmallMemory(): void {
  const { env, execPath, execArgv, argv } = process;
  if (env.MALLOC_ARENA_MAX !== undefined || process.send !== undefined) return;
  process.execve?.(execPath, [execPath, ...flags, ...execArgv, ...argv.slice(1)], { ...env, ...settings });
}
