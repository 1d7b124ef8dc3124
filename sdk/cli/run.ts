/** `trellis run`: runs a deployed function in the service. */
import { createApi } from './api.ts';
import {
  type CommandContext,
  environmentFor,
  exitCodes,
  processContext,
  readArguments,
  readJson,
  required,
  serviceOptions,
  serviceUsage,
  UsageError,
} from './arguments.ts';
import { runDeployed, summaryOf } from './run-deployed.ts';
import { readTarget } from './target.ts';

const usage = `Usage: trellis run <integration>/<function> --connection ID [options]

Runs a deployed sync or action in the service, and prints its log until it ends.

  --connection ID    the connection of the run
  --input JSON       the input of an action
  --variant NAME     the variant of a sync; default base
  --allow-mass-delete MODEL=COUNT
                     for a sync with a held deletion: delete at most COUNT records of the model, once;
                     can be repeated for several models
${serviceUsage}

${exitCodes}`;

/** Returns the exit code: 1 if the run failed or did not start. */
export async function runCommand(args: string[], context: CommandContext = processContext): Promise<number> {
  const { env, print, printError } = context;
  const parsed = readArguments(args, {
    ...{ usage, print, maxPositionals: 1 },
    options: {
      ...serviceOptions,
      connection: { type: 'string' },
      input: { type: 'string' },
      variant: { type: 'string', default: 'base' },
      'allow-mass-delete': { type: 'string', multiple: true },
    },
  });
  if (parsed === undefined) return 0;
  const { values } = parsed;
  const options = {
    target: readTarget(parsed.positionals[0]),
    connectionId: required('--connection', values.connection),
    variant: values.variant,
    input: readJson('--input', values.input),
    allowed: readAllowed(values['allow-mass-delete']),
    print,
  };
  const { run, output } = await runDeployed(createApi(environmentFor(values, env)), options);
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
