/**
 * Preloaded by a service that is measured: how much of a processor its main thread takes from one look to the next, each
 * as soon as the event loop allows. On a machine that others use too this tells what the service itself holds up.
 */
import { writeFileSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';

const lookMs = 5;
const file = process.env.BENCH_LOOP_FILE;

if (isMainThread && file !== undefined) {
  let cpuMs: number[] = [];
  let before = process.threadCpuUsage();
  setInterval(() => {
    const { user, system } = process.threadCpuUsage(before);
    before = process.threadCpuUsage();
    cpuMs.push((user + system) / 1000);
  }, lookMs).unref();
  // What was seen since the last time.
  process.on('SIGUSR2', () => {
    writeFileSync(file, JSON.stringify(cpuMs));
    cpuMs = [];
  });
}
