/**
 * Checks the requires of a bundle, in a process for functions: it cannot open files, has limits of memory and time, and may
 * crash without harm.
 */
import { createHash } from 'node:crypto';
import { keepResult } from '../../concurrency.ts';
import { bundleOwn, modulePath } from './program.ts';
import type { CheckInput } from './requires.ts';
import type { RunOrder, RunOutcome } from './run-order.ts';
import type { Runtime } from './runtime.ts';

const checkBundle = keepResult(async (): Promise<RunOrder['bundle']> => {
  const code = await bundleOwn({
    entryPoints: [modulePath('./requires')],
    platform: 'neutral',
    mainFields: ['module', 'main'],
  });
  return { id: createHash('sha256').update(code).digest('hex'), code };
});

/** The result is `string[]`: why the bundle is refused, one sentence for each place; empty if it is accepted. */
export async function checkRequires(
  runtime: Pick<Runtime, 'run'>,
  { code, also, ...order }: CheckInput & Pick<RunOrder, 'environmentId' | 'limits' | 'signal'>,
): Promise<RunOutcome> {
  let bundle: RunOrder['bundle'];
  try {
    bundle = await checkBundle();
  } catch (error) {
    return { failure: { cause: 'unavailable', message: `The check could not be made: ${error}` } };
  }
  return runtime.run({
    ...order,
    bundle,
    exportName: 'default',
    kind: 'action',
    input: { code, also } satisfies CheckInput,
    about: {},
    serve: () => Promise.reject(new Error('The check makes no calls.')),
    log: () => {},
  });
}
