/** `trellis run`: runs a deployed function in the service. */
import { createApi } from './api.ts';
import {
  type CommandContext,
  environmentFor,
  processContext,
  readJson,
  type ServiceOptions,
  UsageError,
} from './arguments.ts';
import { runDeployed, summaryOf } from './run-deployed.ts';
import { readTarget } from './target.ts';

type RunOptions = ServiceOptions & {
  connection: string;
  input?: string | undefined;
  variant: string;
  allowMassDelete?: string[] | undefined;
};

/** Returns the exit code: 1 if the run failed or did not start. */
export async function runCommand(
  name: string,
  options: RunOptions,
  { env, print, printError }: CommandContext = processContext,
): Promise<number> {
  const wanted = {
    target: readTarget(name),
    connectionId: options.connection,
    variant: options.variant,
    input: readJson('--input', options.input),
    allowed: readAllowed(options.allowMassDelete),
    print,
  };
  const { run, output } = await runDeployed(createApi(environmentFor(options, env)), wanted);
  const isSuccess = run.state === 'succeeded';
  for (const line of summaryOf(run)) (isSuccess ? print : printError)(line);
  if (output !== undefined) print(JSON.stringify(output, null, 2));
  return isSuccess ? 0 : 1;
}

/** The allowed number of deletions by model. Throws a UsageError. */
function readAllowed(texts: readonly string[] | undefined): Record<string, number> | undefined {
  if (texts === undefined) return undefined;
  const entries = texts.map((text): [string, number] => {
    const [, model, count] = /^([^=]+)=([1-9]\d{0,14})$/.exec(text) ?? [];
    if (model !== undefined) return [model, Number(count)];
    throw new UsageError(
      `--allow-mass-delete must be MODEL=COUNT, such as Contact=2997, not ${JSON.stringify(text)}.`,
    );
  });
  return Object.fromEntries(entries);
}
