/**
 * Flags that keep the memory of the process small. Node reads them at its start; docs/decisions/0009 has their gains and
 * costs.
 *
 * - V8's young generation grows to 24 MB instead of 48, and with it the buffers that wait to be collected. Its own thread
 *   collects it: on few cores, parallel collection costs more than it saves.
 * - The old generation is collected when it has doubled, not when it has grown fourfold. Empty pages are returned at
 *   once, not after 8 s.
 * - The proxy calls `gc` when V8 would wait (docs/decisions/0014).
 * - glibc keeps freed memory in an arena for each thread: two instead of eight a core. Blocks from 1 MB on are returned to
 *   the system when they are freed, and so is free memory above 4 MB at the end of an arena; without fixed values, glibc
 *   raises both by the largest block that was freed. Other C libraries ignore these settings.
 */
const flags = [
  '--max-semi-space-size=8',
  '--no-parallel-scavenge',
  '--heap-growing-percent=100',
  '--memory-pool-timeout=0',
  '--expose-gc',
];
const settings = {
  MALLOC_ARENA_MAX: '2',
  MALLOC_MMAP_THRESHOLD_: String(2 ** 20),
  MALLOC_TRIM_THRESHOLD_: String(4 * 2 ** 20),
};

/**
 * Restarts this command with these flags, in the same process and with the same arguments. Returns if it was restarted
 * before, if the operator has set MALLOC_ARENA_MAX, if a parent process would lose its channel to this process, and on
 * systems without `execve`. Call it before anything is open.
 */
export function restartWithSmallMemory(): void {
  const { env, execPath, execArgv, argv } = process;
  if (env.MALLOC_ARENA_MAX !== undefined || process.send !== undefined) return;
  process.execve?.(execPath, [execPath, ...flags, ...execArgv, ...argv.slice(1)], { ...env, ...settings });
}
