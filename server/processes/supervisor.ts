/**
 * Several processes of one machine that serve one port, each a node.
 *
 * Owns: their start, restart, rolling restart and stop, and the collection of their metrics. This process also holds what the
 * installation needs once: the embedded database, the sandbox, migrations (`startInstallation`). It accepts the connections of the
 * port and passes each to a process in turn, see docs/decisions/0024. Does not own: a node (`startNode`), its process
 * (`child.ts`).
 */
import cluster, { type Worker } from 'node:cluster';
import { setTimeout as pause } from 'node:timers/promises';
import { limitConcurrency } from '../concurrency.ts';
import type { Config } from '../config/config.ts';
import type { Logger } from '../log.ts';
import {
  type Installation,
  openService,
  replacedDelayMs,
  type Service,
  startInstallation,
  startParts,
  withFixedPort,
} from '../main.ts';
import { createProcessMetrics, type ProcessMetrics } from '../metrics/metrics.ts';
import { messageOf } from '../ops/doctor/check.ts';
import { version } from '../version.ts';
import type { ProcessStart, ToProcess, ToSupervisor } from './channel.ts';

/** A process that lived longer has not failed at its start, and its successor is started at once. */
const calmMs = 60_000;
const minPauseMs = 1_000;
const maxPauseMs = 30_000;
/** For the parts of a process, after its requests have ended. */
const stopPartsMs = 5_000;
/** For the metrics of one process: a scrape goes without those of a process that does not answer. */
const reportMs = 1_000;

/** As `startService`, with `config.processes` processes. */
export function startProcesses(given: { config: Config; log: Logger }): Promise<Service> {
  const { log } = given;
  return startParts(log, async (parts) => {
    const config = await withFixedPort(given.config);
    const installation = await startInstallation({ config, log, parts });
    const processes = createProcesses({ config, log, installation });
    parts.push({ name: 'processes', stop: processes.stop });
    await processes.start();
    const service = await openService(config, installation, { reload: processes.restart });
    processes.announceBuild();
    return service;
  });
}

type Process = {
  name: string;
  /** Undefined if the system could not start it. */
  worker: Worker | undefined;
  startedAtMs: number;
  isReady: boolean;
  /** From this call on, new connections go to the other processes. */
  passNoMore: () => void;
  /** The request to end, which a starting process receives when it is ready. */
  leave?: ToProcess & { is: 'stop' };
  /** Rejects with the reason if it ends before. */
  ready: Promise<void>;
  /** Resolves with the way in which it ended. */
  exited: Promise<string>;
};

function createProcesses({
  config,
  log,
  installation,
}: {
  config: Config;
  log: Logger;
  installation: Installation;
}) {
  const running = new Set<Process>();
  const stopping = new AbortController();
  const { target, sandbox, web } = installation;
  const readOwn = createProcessMetrics(() => [], []);
  const reports = new Map<number, (families: ProcessMetrics['families']) => void>();
  let requests = 0;

  const start = (name: string): ProcessStart => ({
    name,
    version,
    target,
    port: config.port,
    baseUrl: config.baseUrl,
    sandbox: sandbox && { url: sandbox.url, client: sandbox.client },
  });

  /** If the system cannot start a process, that is the reason of `ready` and `exited`. */
  function spawn(): Process {
    const ready = Promise.withResolvers<void>();
    const exited = Promise.withResolvers<string>();
    ready.promise.catch(() => {});
    const one: Process = {
      name: freeName(running),
      worker: undefined,
      startedAtMs: performance.now(),
      isReady: false,
      passNoMore: () => {},
      ready: ready.promise,
      exited: exited.promise,
    };
    running.add(one);
    const ended = (how: string) => {
      running.delete(one);
      ready.reject(new Error(how));
      exited.resolve(how);
    };
    try {
      one.worker = cluster.fork();
    } catch (error) {
      ended(messageOf(error));
      return one;
    }
    const { worker } = one;
    one.passNoMore = returnConnections(worker, () =>
      [...running].some((other) => other !== one && other.isReady && other.leave === undefined),
    );
    let reason: string | undefined;
    worker.on('message', (message: ToSupervisor) => {
      if (message.is === 'loaded')
        send(one, { is: 'start', start: start(one.name), building: web.building() });
      if (message.is === 'ready') {
        one.isReady = true;
        ready.resolve();
        if (one.leave !== undefined) send(one, one.leave);
      }
      if (message.is === 'failed') reason = message.reason;
      if (message.is === 'reported') reports.get(message.id)?.(message.families);
      if (message.is === 'collect') void answer(one, message.id);
    });
    // A process that was not started does not exit. One whose channel broke does.
    worker.on('error', (error) => {
      if (worker.process.pid === undefined) ended(messageOf(error));
    });
    worker.once('exit', (code, signal) => {
      const how = reason ?? `A process ended with ${signal ? `the signal ${signal}` : `code ${code}`}.`;
      if (one.leave !== undefined && code !== 0)
        log.error({ process: one.name, why: how }, 'a process did not stop cleanly');
      ended(how);
    });
    return one;
  }

  function send({ worker }: Process, message: ToProcess): void {
    if (worker?.isConnected()) worker.send(message);
  }

  /** The metrics of all processes, for the one that was asked for them. */
  async function answer(asking: Process, id: number): Promise<void> {
    const others = await Promise.all([...running].filter(({ isReady }) => isReady).map(metricsOf));
    const processes = others.filter((one) => one !== undefined);
    processes.push({ process: 'supervisor', families: await readOwn() });
    send(asking, { is: 'collected', id, processes });
  }

  async function metricsOf(one: Process): Promise<ProcessMetrics | undefined> {
    const id = requests++;
    const reported = Promise.withResolvers<ProcessMetrics['families']>();
    reports.set(id, reported.resolve);
    send(one, { is: 'report', id });
    const late = pause(reportMs, undefined, { ref: false });
    const families = await Promise.race([reported.promise, late]).finally(() => reports.delete(id));
    return families && { process: one.name, families };
  }

  /** Starts another process when this one ends, at once or, if processes keep failing, after a pause that grows. */
  async function keep(one: Process, failures = 0): Promise<void> {
    const how = await one.exited;
    if (one.leave !== undefined || stopping.signal.aborted) return;
    const isCalm = performance.now() - one.startedAtMs > calmMs;
    const pauseMs = isCalm || failures === 0 ? 0 : Math.min(maxPauseMs, minPauseMs * 2 ** (failures - 1));
    log.error(
      { process: one.name, why: how, pauseMs },
      'a process ended unexpectedly; another one is started',
    );
    await pause(pauseMs, undefined, { signal: stopping.signal }).catch(() => {});
    if (!stopping.signal.aborted) void keep(spawn(), isCalm ? 1 : failures + 1);
  }

  async function end(one: Process, { isReplaced }: { isReplaced: boolean }): Promise<void> {
    one.leave = { is: 'stop', isReplaced };
    // Seconds before the process closes its port, so that no new connection is on its way to it then.
    if (isReplaced) one.passNoMore();
    if (one.isReady) send(one, one.leave);
    const kill = setTimeout(
      () => {
        log.error({ process: one.name }, 'a process did not stop in time, and is killed');
        one.worker?.process.kill('SIGKILL');
      },
      config.drainDelayMs + replacedDelayMs + config.drainMs + stopPartsMs,
    );
    await one.exited.finally(() => clearTimeout(kill));
  }

  /** Replaces each process by a new one that is ready before the old one stops. After a failure the others stay. */
  async function replaceAll(): Promise<void> {
    for (const old of [...running]) {
      if (stopping.signal.aborted || old.leave !== undefined || !running.has(old)) continue;
      const fresh = spawn();
      try {
        await fresh.ready;
      } catch (error) {
        if (stopping.signal.aborted) return;
        log.error({ err: error }, 'a new process did not start: the restart ends here, and the others stay');
        return;
      }
      void keep(fresh);
      // If the old one has ended meanwhile, `keep` starts another one in its place, and this one is too many.
      await end(running.has(old) ? old : fresh, { isReplaced: true });
    }
    log.info('all processes were restarted');
  }

  const oneAtATime = limitConcurrency(1);
  let isRestartDue = false;
  return {
    /** Resolves when all processes serve. Rejects with the reason of the first that could not start. */
    async start(): Promise<void> {
      const all = Array.from({ length: config.processes }, spawn);
      await Promise.all(all.map(({ ready }) => ready));
      for (const one of all) void keep(one);
    },
    /** A rolling restart. A request during one begins another after it. */
    async restart(): Promise<void> {
      if (isRestartDue) return;
      isRestartDue = true;
      await oneAtATime(async () => {
        isRestartDue = false;
        await replaceAll();
      });
    },
    /** Passes on that the dashboard is being built, and the end of the build. */
    announceBuild(): void {
      const announce = () => {
        for (const one of running) send(one, { is: 'building', building: web.building() });
      };
      announce();
      void web.settled().then(announce);
    },
    /**
     * Stops all at the same time: each of them does for its connections what a single process does, and the time limit of the stop
     * does not grow with their number.
     */
    async stop(): Promise<void> {
      stopping.abort();
      await Promise.all([...running].map((one) => end(one, { isReplaced: false })));
    },
  };
}

/**
 * Gives a connection that a process has received but not accepted before it ended to another process, or closes it. Node 26.10
 * would keep it open without an answer: `handoff` in its lib/internal/cluster/round_robin_handle.js waits for the response of
 * the process. This sends the response of a process that does not accept. Nothing was read from the connection.
 *
 * The returned function ends the passing of connections: it emits the message that a process sends when it closes its port.
 */
function returnConnections({ process: child }: Worker, isAnotherListening: () => boolean): () => void {
  const passed = new Map<number, { close(): void }>();
  const ports = new Set<string>();
  const tellNode = (message: object) => child.emit('internalMessage', { cmd: 'NODE_CLUSTER', ...message });
  const send = child.send as (...words: unknown[]) => boolean;
  child.send = (...words: unknown[]) => {
    const [{ seq, key }, handle] = words as [
      { seq: number; key?: string },
      { close(): void } | null | undefined,
    ];
    if (handle) passed.set(seq, handle);
    if (key !== undefined) ports.add(key);
    return Reflect.apply(send, child, words);
  };
  child.on('internalMessage', ({ ack }: { ack?: number }) => {
    if (ack !== undefined) passed.delete(ack);
  });
  // After the last message of the process. Node has no event `disconnect` while a connection is passed.
  child.once('close', () => {
    for (const [ack, handle] of passed) {
      if (isAnotherListening()) tellNode({ ack, accepted: false });
      else handle.close();
    }
  });
  return () => {
    for (const key of ports) tellNode({ act: 'close', key });
  };
}

/** The lowest number without a process: so metrics have few values of the label, and no two processes have the same. */
function freeName(running: ReadonlySet<Process>): string {
  const taken = new Set(Array.from(running, ({ name }) => name));
  let number = 1;
  while (taken.has(String(number))) number += 1;
  return String(number);
}
