/**
 * Checks what a bundle requires, in a process for functions: it cannot open a file, has limits of memory and time, and may
 * die without harm to others.
 */
import { createHash } from 'node:crypto';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { bundleOwn } from './bundle-own.ts';
import type { CheckInput } from './requires.ts';
import type { RunOrder, RunOutcome, Runtime } from './runtime.ts';

let made: Promise<RunOrder['bundle']> | undefined;

/** The result is `string[]`: why the bundle is refused, one sentence for each place, none when it is accepted. */
export async function checkRequires(
  runtime: Pick<Runtime, 'run'>,
  { code, also, ...order }: CheckInput & Pick<RunOrder, 'environmentId' | 'limits' | 'signal'>,
): Promise<RunOutcome> {
  made ??= make().catch((error) => {
    made = undefined;
    throw error;
  });
  let bundle: RunOrder['bundle'];
  try {
    bundle = await made;
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
    serve: () => Promise.reject(new Error('The check asks for nothing.')),
    log: () => {},
  });
}

async function make(): Promise<RunOrder['bundle']> {
  const requires = fileURLToPath(new URL(`./requires${extname(import.meta.filename)}`, import.meta.url));
  const code = await bundleOwn({
    entryPoints: [requires],
    platform: 'neutral',
    mainFields: ['module', 'main'],
  });
  return { id: createHash('sha256').update(code).digest('hex'), code };
}
