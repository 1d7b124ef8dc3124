// How soon a run begins, where a process has to be started for it and where one waits, and what a call over its channel
// takes, beside what Node takes by itself.

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createContext, runInContext } from 'node:vm';
import { sdkParts } from '../server/functions/isolation/program.ts';
import { createRuntime, type Runtime } from '../server/functions/isolation/runtime.ts';
import { type BenchOptions, median, report, timed } from './support.ts';

const empty = "exports.default = { type: 'action', exec: async () => null };";
const withModel = `const { z } = require('zod'); const model = z.object({ id: z.string() });
  exports.default = { type: 'action', exec: async () => model.parse({ id: 'a' }) };`;
const asking = `exports.default = { type: 'action', exec: async (trellis, count) => {
  for (let nth = 0; nth < count; nth++) await trellis.getCheckpoint() } };`;

/** As plain as it can be: Node's own IPC, and the code in a new context without a limit; or so many asks of its parent. */
const plainProgram = `
const vm = require('node:vm');
let answered;
process.on('message', async ({ code, asks }) => {
  if (code === undefined && asks === undefined) return answered();
  if (code !== undefined) {
    const module = { exports: {} };
    vm.runInContext('(function (module, exports) {' + code + '})', vm.createContext({}))(module, module.exports);
    await module.exports.default.exec();
  }
  for (let nth = 0; nth < asks; nth++) {
    const { promise, resolve } = Promise.withResolvers();
    answered = resolve;
    process.send({ ask: 'checkpoint' });
    await promise;
  }
  process.send({ isDone: true });
});`;
/** What the code of a run has behind it in a process that is used for a while. */
const runsBefore = 10;
/** In a process. Of one run, a garbage collection at that place would be the median. */
const warmRuns = 5;

export async function measureStarts({ rounds, scale }: BenchOptions): Promise<void> {
  const starts = rounds * (scale === 'full' ? 7 : 3);
  const asks = scale === 'full' ? 5_000 : 500;
  const figures = new Map<string, number[]>();
  const note = async (name: string, work: () => Promise<unknown>) => {
    const ms = await timed(work);
    figures.set(name, [...(figures.get(name) ?? []), ms]);
  };
  // The first one makes the texts that all processes are given.
  await withRuntime((runtime) => run(runtime, empty));
  for (let nth = 0; nth < starts; nth += 1) {
    await withRuntime(async (runtime) => {
      await note('cold', () => run(runtime, empty));
      for (let before = 0; before < runsBefore; before += 1) await run(runtime, withModel);
      for (let again = 0; again < warmRuns; again += 1) await note('warm', () => run(runtime, empty));
      for (let again = 0; again < warmRuns; again += 1) await note('model', () => run(runtime, withModel));
      await note('asks', () => run(runtime, asking, asks));
    });
    await note('node', () =>
      once(spawn(process.execPath, ['-e', '0'], { env: {}, stdio: 'ignore' }), 'exit'),
    );
    let child: ChildProcess | undefined;
    await note('fork', async () => {
      child = startPlain();
      await runPlain(child, { code: empty });
    });
    for (let before = 0; before < runsBefore; before += 1) await runPlain(child!, { code: empty });
    await note('again', () => runPlain(child!, { code: empty }));
    await note('plain asks', () => runPlain(child!, { asks }));
    child!.kill();
    await note('context', async () => {
      const module = { exports: {} as { default: { exec(): Promise<unknown> } } };
      runInContext(`(function (module, exports) {${empty}})`, createContext({}))(module, module.exports);
      await module.exports.default.exec();
    });
  }
  const of = (name: string) => median(figures.get(name) ?? []);
  const show = (name: string, ms: number) => report(name, `${ms.toFixed(3)} ms`);
  const beside = (name: string, ms: number, floor: { ms: number; max: number }) =>
    report(name, `${ms.toFixed(3)} ms`, { ratio: ms / floor.ms, must: `<= ${floor.max}` });
  show('bare: `node -e 0`', of('node'));
  show('bare: process that runs code in a vm context', of('fork'));
  beside('cold start', of('cold'), { ms: of('fork'), max: 8 });
  show('bare: vm context', of('context'));
  show('bare: vm context in a process that waits', of('again'));
  beside('warm start', of('warm'), { ms: of('again'), max: 4 });
  show('warm start of code that requires zod', of('model'));
  show("bare: a call over Node's IPC", of('plain asks') / asks);
  beside('a call that the service answers at once', (of('asks') - of('warm')) / asks, {
    ms: of('plain asks') / asks,
    max: 3,
  });
}

async function withRuntime(work: (runtime: Runtime) => Promise<void>): Promise<void> {
  const runtime = createRuntime(sdkParts);
  await runtime.confinement();
  await work(runtime);
  await runtime.close();
}

async function run(runtime: Runtime, code: string, input: unknown = null): Promise<void> {
  const outcome = await runtime.run({
    environmentId: 1,
    bundle: { id: code, code },
    exportName: 'default',
    kind: 'action',
    input,
    about: {},
    serve: async () => ({ value: null }),
    log: () => {},
  });
  if ('failure' in outcome) throw new Error(outcome.failure.message);
}

function startPlain(): ChildProcess {
  return spawn(process.execPath, ['-e', plainProgram], {
    env: {},
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
}

async function runPlain(child: ChildProcess, order: { code: string } | { asks: number }): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const hear = (message: { ask: string } | { isDone: true }) => {
    if ('ask' in message) child.send({ value: null });
    else resolve();
  };
  child.on('message', hear as never);
  child.send(order);
  await promise;
  child.off('message', hear as never);
}
