import cluster from 'node:cluster';
import type { Config } from '../config/config.ts';
import type { Building } from '../http/pages/static.ts';
import type { Logger } from '../log.ts';
import { joinInstallation, startNode, startParts, startTraces } from '../main.ts';
import type { ProcessMetrics, ReadProcessMetrics } from '../metrics/metrics.ts';
import { messageOf } from '../ops/doctor/check.ts';
import { version } from '../version.ts';
import { webDirectory } from '../web-build.ts';
import type { ProcessStart, ToProcess, ToSupervisor } from './channel.ts';

/** Whether this process was started by a supervisor. */
export const isChild = cluster.isWorker;

/**
 * Runs one node as a process of a supervisor until that stops it; then the process exits. Node itself ends the process when the
 * channel to the supervisor closes. Signals of a terminal or of systemd reach all processes of the service: the supervisor acts
 * on them.
 */
export async function runChild(given: { config: Config; log: Logger; onReady: () => void }): Promise<never> {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => {});
  const channel = openChannel();
  const start = await channel.started;
  const log = given.log.child({ process: start.name });
  const config = { ...given.config, port: start.port, baseUrl: start.baseUrl };
  let node: { stop: () => Promise<void> };
  try {
    node = await startParts(log, (parts) => startChild({ config, log, parts }, { start, channel }));
  } catch (error) {
    // The supervisor prints or logs it.
    log.debug({ err: error }, 'this process could not start');
    await channel.send({ is: 'failed', reason: messageOf(error) });
    process.exit(1);
  }
  await channel.send({ is: 'ready' });
  given.onReady();
  await channel.stopped;
  await node.stop();
  process.exit(0);
}

async function startChild(
  starting: Parameters<typeof startNode>[0],
  { start, channel }: { start: ProcessStart; channel: Channel },
): Promise<object> {
  if (start.version !== version)
    throw new Error(
      `The files are of version ${version}, and version ${start.version} runs: restart the service.`,
    );
  await startTraces(starting);
  const web = { directory: webDirectory, building: channel.building };
  const joined = await joinInstallation(starting, { target: start.target });
  return startNode(
    starting,
    { ...joined, sandbox: start.sandbox, web },
    { name: start.name, siblings: channel, isReplaced: channel.isReplaced },
  );
}

type Channel = ReturnType<typeof openChannel>;

function openChannel() {
  const started = Promise.withResolvers<ProcessStart>();
  const stopped = Promise.withResolvers<void>();
  let building: Building = { is: 'none' };
  let isReplaced = false;
  let read: ReadProcessMetrics = async () => [];
  let requests = 0;
  const collecting = new Map<number, (processes: ProcessMetrics[]) => void>();
  // A message to a supervisor that has ended is lost, and this process ends too.
  const send = (message: ToSupervisor) =>
    new Promise<void>((resolve) => process.send?.(message, undefined, undefined, () => resolve()));
  process.on('message', async (message: ToProcess) => {
    if (message.is === 'start') started.resolve(message.start);
    if (message.is === 'start' || message.is === 'building') building = message.building;
    if (message.is === 'report') await send({ is: 'reported', id: message.id, families: await read() });
    if (message.is === 'collected') collecting.get(message.id)?.(message.processes);
    if (message.is === 'stop') {
      isReplaced = message.isReplaced;
      stopped.resolve();
    }
  });
  void send({ is: 'loaded' });
  return {
    started: started.promise,
    stopped: stopped.promise,
    building: () => building,
    isReplaced: () => isReplaced,
    send,
    report(given: ReadProcessMetrics) {
      read = given;
    },
    async collect(): Promise<ProcessMetrics[]> {
      const id = requests++;
      const { promise, resolve } = Promise.withResolvers<ProcessMetrics[]>();
      collecting.set(id, resolve);
      void send({ is: 'collect', id });
      return promise.finally(() => collecting.delete(id));
    },
  };
}
