/** `trellis run`: a function that is deployed, in the service. */
import { openApi } from './api.ts';
import {
  exitCodes,
  readArguments,
  readJson,
  required,
  serviceOptions,
  serviceUsage,
  settingsOf,
  UsageError,
} from './arguments.ts';
import { endOf } from './follow-run.ts';
import { runDeployed } from './run-deployed.ts';
import { own, type Surroundings } from './surroundings.ts';
import { readTarget } from './target.ts';

const usage = `Usage: trellis run <integration>/<function> --connection ID [options]

Runs a sync or an action that is deployed, in the service, and follows its log to its end.

  --connection ID    the connection it runs for
  --input JSON       the input of an action
  --variant NAME     the variant of a sync; base unless given
  --allow-mass-delete MODEL=COUNT
                     of a sync whose deletion is held: delete at most so many records of the model, once;
                     may be given for several models
${serviceUsage}

${exitCodes}`;

/** The exit code: 1 where the run failed or did not start. */
export async function runCommand(args: string[], surroundings: Surroundings = own): Promise<number> {
  const { env, print, complain } = surroundings;
  const given = readArguments(args, {
    ...{ usage, print, maxPositionals: 1 },
    options: {
      ...serviceOptions,
      connection: { type: 'string' },
      input: { type: 'string' },
      variant: { type: 'string', default: 'base' },
      'allow-mass-delete': { type: 'string', multiple: true },
    },
  });
  if (given === undefined) return 0;
  const { values } = given;
  const order = {
    target: readTarget(given.positionals[0]),
    connectionId: required('--connection', values.connection),
    variant: values.variant,
    input: readJson('--input', values.input),
    allowed: readAllowed(values['allow-mass-delete']),
    print,
  };
  const { run, output } = await runDeployed(openApi(settingsOf(values, env)), order);
  const isFine = run.state === 'succeeded';
  for (const line of endOf(run)) (isFine ? print : complain)(line);
  if (output !== undefined) print(JSON.stringify(output, null, 2));
  return isFine ? 0 : 1;
}

/** By model. */
function readAllowed(given: readonly string[] | undefined): Record<string, number> | undefined {
  if (given === undefined) return undefined;
  const read = given.map((text): [string, number] => {
    const [, model, count] = /^([^=]+)=([1-9]\d{0,14})$/.exec(text) ?? [];
    if (model !== undefined) return [model, Number(count)];
    throw new UsageError(
      `--allow-mass-delete is MODEL=COUNT, such as Contact=2997, not ${JSON.stringify(text)}.`,
    );
  });
  return Object.fromEntries(read);
}
