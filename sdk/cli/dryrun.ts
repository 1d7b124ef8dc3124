/** `trellis dryrun`: runs a local function for a connection without writing. */
import { resolve } from 'node:path';
import { formatCall, type Reads } from '../local/reads.ts';
import { runLocally } from '../local/run-locally.ts';
import { createApi } from './api.ts';
import { type CommandContext, environmentFor, processContext } from './arguments.ts';
import { liveStored } from './live-reads.ts';
import { compileFunction, prepareLive, type RunValues, readRunOptions, report } from './local-run.ts';
import { formatLine } from './run-deployed.ts';
import { findTarget, functionPath, readTarget } from './target.ts';

/** Returns the exit code: 1 if the function threw, or if a record does not match its model. */
export async function dryrunCommand(
  name: string,
  values: RunValues,
  { env, print, printError }: CommandContext = processContext,
): Promise<number> {
  const target = readTarget(name);
  const options = readRunOptions(values);
  const folder = resolve(values.folder);
  const file = await findTarget(folder, target);
  const api = createApi(environmentFor(values, env));
  const code = await compileFunction(folder, { file, printError });
  if (code === undefined) return 1;
  const live = await prepareLive(api, { file, options });
  const { about, metadata } = live;
  print(`${functionPath(file)} for ${options.connectionId}, dry run`);
  const end = await runLocally({
    code,
    kind: file.kind,
    about,
    metadata,
    input: options.input,
    checkpoint: options.checkpoint,
    stored: liveStored(api, { ref: live.ref, variant: options.variant }),
    reads: withPrintedCalls(live.reads, print),
    log: (level, text) => print(formatLine(level, String(text))),
  });
  const isSuccess = end.outcome.error === undefined && end.mismatches.length === 0;
  for (const line of report(end)) (isSuccess ? print : printError)(line);
  print(`Nothing was written${options.mayWrite ? ', except by calls to the provider' : ''}.`);
  return isSuccess ? 0 : 1;
}

/** Prints each call with the status of its response. */
function withPrintedCalls(reads: Reads, print: (line: string) => void): Reads {
  return {
    ...reads,
    async call(call, signal) {
      const response = await reads.call(call, signal);
      print(`  ${formatCall(call)} ${response.value.status}`);
      return response;
    },
  };
}
