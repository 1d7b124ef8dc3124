import { createHash } from 'node:crypto';
import type { TestContext } from 'node:test';
import {
  createRuntime,
  type LogLine,
  type RunOrder,
  type RunOutcome,
  type Runtime,
  type RuntimeParts,
  type RuntimeSettings,
} from './runtime.ts';

/** A runtime that ends with the test. */
export function openRuntime(
  t: TestContext,
  settings: Partial<RuntimeSettings> = {},
  parts?: RuntimeParts,
): Runtime {
  const runtime = createRuntime(parts, { maxProcesses: 2, memoryMb: 64, ...settings });
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
