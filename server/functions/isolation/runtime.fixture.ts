import { createHash } from 'node:crypto';
import type { TestContext } from 'node:test';
import type { LogLine, RunOrder, RunOutcome, RuntimeParts, RuntimeSettings } from './run-order.ts';
import { createRuntime, type Runtime } from './runtime.ts';

/** Calls `exec` (`onWebhook` for webhooks), or the export itself if that is a function, with the service and the input. */
export const plainHarness = `
exports.start = function start({ exported, kind, input, service }) {
  if (typeof exported === 'function') return exported(service, input);
  const name = kind === 'webhook' ? 'onWebhook' : 'exec';
  if (exported === null || typeof exported !== 'object' || typeof exported[name] !== 'function')
    throw new TypeError('The export has no function ' + name + '.');
  return exported[name](service, input);
};
`;

/** A runtime that ends with the test. */
export function openRuntime(
  t: TestContext,
  settings: Partial<RuntimeSettings> = {},
  parts: Partial<RuntimeParts> = {},
): Runtime {
  const given = async () => ({ modules: {}, harness: plainHarness, ...parts });
  const runtime = createRuntime(given, { maxProcesses: 2, memoryMb: 64, ...settings });
  t.after(() => runtime.close());
  return runtime;
}

/** Runs the text as a bundle whose export is `default`, with the environment 1 unless told otherwise. */
export async function runCode(
  runtime: Runtime,
  code: string,
  order: Partial<RunOrder> = {},
): Promise<{ outcome: RunOutcome; lines: LogLine[] }> {
  const lines: LogLine[] = [];
  const outcome = await runtime.run({
    environmentId: 1,
    bundle: { id: createHash('sha256').update(code).digest('hex'), code },
    exportName: 'default',
    kind: 'action',
    input: null,
    serve: async (name, args) => ({ value: { name, args } }),
    log: (line) => lines.push(line),
    ...order,
  });
  return { outcome, lines };
}
