/**
 * The process that runs customer code: one run at a time, each in its own realm. `program.ts` builds its text, which Node gets
 * on its standard input, so the process needs no access to files.
 */
import { Socket } from 'node:net';
import { setPriority } from 'node:os';
import type { Script } from 'node:vm';
import { Bridge } from './bridge.ts';
import { Channel, channelBrokenExitCode, floodedExitCode } from './channel.ts';
import { disarm } from './harden.ts';
import type { Message, Order } from './messages.ts';
import { compile, hardenShared } from './realm.ts';

const harnessName = '\u0000harness';

const channelFd = 3;
/** How often a run is checked for a stall. */
const stallCheckMs = 500;

/** The priority of the process: the service and its database come first. */
const lowPriority = 10;
/** Read before `disarm` removes it. */
const lower = setPriority;

disarm();
const exit = process.exit.bind(process);
const socket = new Socket({ fd: channelFd, readable: true, writable: true });
const shared = hardenShared();
if (shared.reached.length > 0) throw new Error(`customers' code reaches ${shared.reached.join(', ')}`);

const scripts = new Map<string, Script>();
const bundles = new Map<string, string | Script>();
let run: Bridge | undefined;

const channel = new Channel(socket, {
  message: (text, payload) => obey(JSON.parse(text), payload),
  bytes: (stream, bytes) => run?.bytes(stream, bytes),
  broken: () => exit(channelBrokenExitCode),
});
// The service has ended.
socket.on('close', () => exit(channelBrokenExitCode));
const send = (message: Message) => channel.send(JSON.stringify(message));

function obey(order: Order, payload: Buffer) {
  switch (order.t) {
    case 'boot':
      boot(JSON.parse(payload.toString('utf8')));
      // Not earlier: a run waits for the start.
      lower(lowPriority);
      return send({ t: 'up' });
    case 'bundle':
      return void bundles.set(order.id, payload.toString('utf8'));
    case 'run':
      return begin(order, payload.toString('utf8'));
    case 'ping':
      return send({ t: 'pong', id: order.id });
    default:
      run?.obey(order, payload);
  }
}

function boot({ modules, harness }: { modules: Record<string, string>; harness: string }): void {
  for (const [name, code] of Object.entries(modules)) scripts.set(name, compile(code, name));
  scripts.set(harnessName, compile(harness, 'trellis:harness'));
}

function begin(order: Extract<Order, { t: 'run' }>, given: string): void {
  const current = new Bridge({
    channel,
    scriptOf: (name) => scripts.get(name),
    bundleScript: () => bundleScript(order.bundle),
    resultBytes: order.resultBytes,
    over: settle,
    flooded: () => exit(floodedExitCode),
  });
  run = current;
  let idleChecks = 0;
  const check = setInterval(() => {
    if (run !== current) return clearInterval(check);
    idleChecks = current.isIdle && underWay().length === 0 ? idleChecks + 1 : 0;
    if (idleChecks === 2) current.stall();
  }, stallCheckMs);
  check.unref();
  current.start(JSON.stringify(order), given);
}

function bundleScript(id: string): Script {
  const known = bundles.get(id)!;
  if (typeof known !== 'string') return known;
  const script = compile(known, 'function.js');
  bundles.set(id, script);
  return script;
}

/** Reports whether the process may be used again: not if anything of the run continues. */
function settle(isClean: boolean): void {
  shared.endRun();
  setImmediate(() =>
    setImmediate(() => {
      run = undefined;
      shared.restore();
      send({ t: 'ready', clean: isClean && underWay().length === 0 });
    }),
  );
}

/** Node's active resources except for pipes: work of its thread pool, timers. */
function underWay(): string[] {
  return process.getActiveResourcesInfo().filter((kind) => kind !== 'PipeWrap' && kind !== 'Immediate');
}

function caught(thrown: unknown): void {
  if (run === undefined) exit(1);
  else run.fail(thrown);
}
process.on('uncaughtException', caught);
process.on('unhandledRejection', caught);
