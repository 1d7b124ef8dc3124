/**
 * What isolation costs a run of customer code: its start, cold and warm, and one call to the service, each beside the bare
 * equivalent measured in turns: a forked Node that runs the code in a `vm` context, without flags, checks or limits.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createRuntime, type Runtime } from '../server/functions/runtime.ts';
import { type Benchmark, median, report, timed } from './support.ts';

const empty = 'exports.default = async () => null;';
const withModel = `const { z } = require('zod'); const model = z.object({ id: z.string() });
  exports.default = async () => model.parse({ id: 'a' });`;
const asking = `exports.default = async (service, count) => {
  for (let at = 0; at < count; at++) await service.ask('get', { at }); return null };`;

/** As plain as it can be: IPC of Node, the same code in a fresh context, an ask answered by a number. */
const bareChild = `
const vm = require('node:vm');
let last = 0; const open = new Map();
const ask = (name, args) => new Promise((resolve) => { open.set(++last, resolve); process.send({ id: last, name, args }) });
process.on('message', async (order) => {
  if (order.answer) { open.get(order.answer)(order.value); return open.delete(order.answer) }
  const module = { exports: {} };
  vm.runInContext('(function (module, exports, require) {' + order.code + '})', vm.createContext({}))(module, module.exports, require);
  process.send({ done: await module.exports.default({ ask }, order.input) ?? null });
});
process.send({ up: true });`;

export const functionsBenchmark: Benchmark = {
  about: 'runs of customer code: cold and warm start, and a call to the service, beside a bare fork with vm',
  async run({ rounds, scale }) {
    const calls = scale === 'full' ? 5_000 : 500;
    const starts = scale === 'full' ? 20 : 5;
    const path = join(tmpdir(), `trellis-bench-functions-${process.pid}.cjs`);
    writeFileSync(path, bareChild);
    const runtime = createRuntime();
    await runtime.confinement();
    const figures: Record<string, number[]> = {};
    const note = (name: string, ms: number) => {
      figures[name] ??= [];
      figures[name].push(ms);
    };
    try {
      for (let round = 0; round < rounds; round++) {
        for (let at = 0; at < starts; at++) {
          // Each environment has processes of its own, so a new one is cold.
          const environmentId = 1 + round * starts + at;
          note('cold start', await timed(() => run(runtime, { environmentId, code: empty })));
          note('warm start', await timed(() => run(runtime, { environmentId, code: empty })));
          note('warm start with zod', await timed(() => run(runtime, { environmentId, code: withModel })));
          let bare: ChildProcess | undefined;
          note(
            'bare: cold start',
            await timed(async () => {
              bare = fork(path, { env: {} });
              await once(bare, 'message');
              await runBare(bare, empty);
            }),
          );
          note('bare: warm start', await timed(() => runBare(bare!, empty)));
          bare!.kill();
        }
        const warm = await timed(() => run(runtime, { environmentId: 1, code: asking, input: calls }));
        note('one call', warm / calls);
        const bare = fork(path, { env: {} });
        await once(bare, 'message');
        note('bare: one call', (await timed(() => runBare(bare, asking, calls))) / calls);
        bare.kill();
      }
    } finally {
      await runtime.close();
    }
    for (const [name, ms] of Object.entries(figures)) report(name, `${median(ms).toFixed(3)} ms`);
  },
};

async function run(
  runtime: Runtime,
  { environmentId, code, input = null }: { environmentId: number; code: string; input?: unknown },
): Promise<void> {
  const outcome = await runtime.run({
    environmentId,
    bundle: { id: code, code },
    exportName: 'default',
    kind: 'action',
    input,
    serve: async (_name, args) => ({ value: args }),
    log: () => {},
  });
  if ('failure' in outcome) throw new Error(outcome.failure.message);
}

async function runBare(child: ChildProcess, code: string, input: unknown = null): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const hear = (message: { id?: number; args?: unknown; done?: unknown }) => {
    if ('done' in message) resolve();
    else child.send({ answer: message.id, value: message.args });
  };
  child.on('message', hear as never);
  child.send({ code, input });
  await promise;
  child.off('message', hear as never);
}
