// A service for `processes.ts`, which no option of `trellis start` can start: one process below a supervisor, and processes
// that listen themselves (SO_REUSEPORT). The first word: `alone`, `passed-on` or `by-kernel`; the number is TRELLIS_PROCESSES.

import { Server } from 'node:net';
import { restartWithSmallMemory } from '../server/cli/small-memory.ts';
import { loadConfigWith } from '../server/config/config.ts';
import { createLog } from '../server/log.ts';
import { startService } from '../server/main.ts';
import { isChild, runChild } from '../server/processes/child.ts';
import { startProcesses } from '../server/processes/supervisor.ts';

const way = process.argv[2];
restartWithSmallMemory();
if (way === 'by-kernel') listenBesideOthers();
const config = loadConfigWith({});
const given = { config, log: createLog({ level: config.logLevel, format: config.logFormat }) };
if (isChild) await runChild({ ...given, onReady: () => {} });
const service = await (way === 'alone' ? startService : startProcesses)(given);
process.once('SIGTERM', () => void service.stop().then(() => process.exit(0)));
console.log(`ready ${service.baseUrl}`);

/** Only Fastify listens by options. */
function listenBesideOthers(): void {
  const { listen } = Server.prototype;
  Server.prototype.listen = function (this: Server, ...words: unknown[]) {
    const [first, ...rest] = words;
    const options = typeof first === 'object' ? { ...first, reusePort: true } : first;
    return Reflect.apply(listen, this, [options, ...rest]);
  } as typeof listen;
}
