/** Functions of customers: what runs them, what calls them, and their effects on connections. */

import { noHooks } from '../connections/store/hooks.ts';
import { AppError } from '../errors.ts';
import { createActions } from '../functions/actions/actions.ts';
import { createInnerProxy } from '../functions/context/inner-proxy.ts';
import { describeHere } from '../functions/deploys/examine.ts';
import { createShipped } from '../functions/deploys/shipped.ts';
import { sdkParts } from '../functions/isolation/program.ts';
import { createRuntime } from '../functions/isolation/runtime.ts';
import { createOnEvents, createUnsavedConnections, validateHere } from '../functions/runs/on-event.ts';
import { resumeSyncsOf } from '../functions/runs/queue.ts';
import { remoteHandlers } from '../functions/runs/remote-handlers.ts';
import { describeRemotely, runRemotely, validateRemotely } from '../functions/runs/remote-runner.ts';
import { startNewSyncs, startSyncsOf } from '../functions/runs/schedule.ts';
import { createRunner } from '../functions/runs/worker.ts';
import { bundleShipped, createFunctionsFolder } from '../functions-folder.ts';
import type { App } from '../http/server.ts';
import { createRemoteCallServer } from '../nodes/remote-call-server.ts';
import { createRemoteCalls } from '../nodes/remote-calls.ts';
import { createProxy } from '../proxy/proxy.ts';
import { endsChannels } from '../webhooks/channels/channel-ends.ts';
import type { Parts } from './parts.ts';

/** Parallel runs: from the queue, and beside it those with a waiting caller. */
const maxQueued = 8;
const maxWaitedFor = 4;
/** Remote calls taken in addition to the free places, so that a place that becomes free does not wait for the next poll. */
const maxAhead = 2;

export type Functions = ReturnType<typeof createFunctions>;

/** How often a node polls for remote calls: an installation with a worker has nodes that depend on its speed. */
const remoteCallPollMs = { worker: 100, all: 500 };

/** Ends with the server. No process of customer code is started before one is needed, and none on a node that serves alone. */
export function createFunctions(app: App, parts: Parts) {
  const { config, log, db, vault, catalog, outbound, brand, baseUrl, webhookBaseUrl } = parts;
  const { now, nowMs, reader, credentials, activity, proxying } = parts;
  const runtime = createRuntime(sdkParts, { maxProcesses: maxQueued + maxWaitedFor });
  const candidates = createUnsavedConnections(reader, { vault, now });
  const executing = {
    db,
    vault,
    brand,
    baseUrl,
    webhookBaseUrl,
    reader,
    credentials,
    outbound,
    runtime,
    activity,
    proxy: createInnerProxy({
      brand,
      createFront: (known, causeOf) =>
        createProxy({ ...proxying, connections: candidates.reader, authenticate: known, causeOf }),
    }),
  };
  const runner = createRunner({ ...executing, log, nowMs, limits: { max: maxQueued } });
  let ran: Promise<void> | undefined;
  app.addHook('preClose', async () => {
    ran = runner.stop(config.drainMs);
  });
  app.addHook('onClose', async () => {
    await ran;
    await runtime.close();
  });
  const watching = {
    db,
    catalog,
    reader,
    credentials,
    webhookBaseUrl,
    log,
    now,
    fetchFor: outbound.fetchFor,
    isSandboxOn: parts.isSandboxOn,
  };
  const means =
    config.role === 'api'
      ? remoteMeans(parts)
      : {
          runner,
          describe: describeHere(runtime),
          validate: validateHere({ ...executing, candidates, log, now }),
        };
  const ownHooks = config.functions.isOn
    ? createOnEvents({
        db,
        log,
        now,
        runner: means.runner,
        validate: means.validate,
        startSyncs: (tx, { connection, at }) => startSyncsOf(tx, { connectionId: connection.id, at }),
        resumeSyncs: (tx, { connection, at }) => resumeSyncsOf(tx, { connectionId: connection.id, at }),
      })
    : noHooks;
  const deploys = { db, describe: means.describe, now, afterDeploy: startNewSyncs };
  return {
    runner,
    runtime,
    watching,
    deploys,
    validate: means.validate,
    hooks: endsChannels(ownHooks, watching),
    actions: createActions({ db, connections: reader, runner: means.runner, now }),
    shipped: createShipped({ ...deploys, log, bundles: bundleShipped }),
    /** Throws if functions are turned off. */
    open: async () => {
      if (!config.functions.isOn) throw new AppError('functions_off');
    },
  };
}

/** For a node that runs no code of customers: it calls others. */
function remoteMeans({ db, vault, now }: Parts) {
  const remoteCalls = createRemoteCalls(db);
  return {
    runner: runRemotely({ db, vault, remoteCalls, now }),
    describe: describeRemotely(remoteCalls),
    validate: validateRemotely({ db, vault, remoteCalls }),
  };
}

/** Runs due work as long as the server listens, serves calls of other nodes, and deploys shipped functions. */
export function runWhile(app: App, parts: Parts, functions: Functions): void {
  const { config, log, db, vault, reader } = parts;
  const { runner, runtime, validate, deploys, shipped } = functions;
  app.addHook('onListen', async () => runner.start());
  const desk = createRemoteCallServer(db, {
    kinds: remoteHandlers({ db, vault, reader, runtime, runner, validate }),
    pollMs: config.role === 'worker' ? remoteCallPollMs.worker : remoteCallPollMs.all,
    remainingCapacity(remoteCalls) {
      const { running, waiting } = runtime.counts();
      // A call that was just taken has not reached its process yet; runs for callers of this node are no remote calls.
      const load = Math.max(running + waiting, runner.fromQueue() + remoteCalls);
      return maxQueued + maxWaitedFor + maxAhead - load;
    },
    onError: (error) => log.warn({ err: error }, 'a remote call of another node failed'),
  });
  app.addHook('onListen', async () => desk.start());
  let done: Promise<void> | undefined;
  app.addHook('preClose', async () => {
    done = desk.stop(config.drainMs);
  });
  app.addHook('onClose', () => done);
  const folder = createFunctionsFolder({
    ...deploys,
    log,
    directory: config.functions.directory,
    environment: 'dev',
    isWatched: !config.isProduction,
  });
  app.addHook('onListen', async () => folder.start());
  app.addHook('preClose', () => folder.stop());
  let upgraded: Promise<unknown> | undefined;
  app.addHook('onListen', async () => {
    upgraded = shipped
      .upgrade()
      .catch((error: unknown) => log.error({ err: error }, 'the built-in functions could not be updated'));
  });
  app.addHook('onClose', async () => void (await upgraded));
}
