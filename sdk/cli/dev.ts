/** `trellis dev`: a folder deployed at each save, and one function of it run. */
import { watchFolder } from '../compile/watch-folder.ts';
import { type Api, openApi } from './api.ts';
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
import { compiled, deployChanged } from './deploy.ts';
import { endOf, pause } from './follow-run.ts';
import { changesSince, positionsOf } from './record-changes.ts';
import { type DeployedRun, runDeployed } from './run-deployed.ts';
import { own, type Surroundings } from './surroundings.ts';
import { noFolder, readTarget } from './target.ts';

const usage = `Usage: trellis dev [FOLDER] [options]

Watches a folder of functions (./functions). At each save types are checked, and what changed is deployed in the
environment of the key: use one for development, its syncs run. Removes nothing. Ctrl-C ends it.

  --run <integration>/<function>
                     run this sync or action after each save, and show its log and what it changed
  --connection ID    the connection that it runs for
  --input JSON       the input of an action
  --variant NAME     the variant of a sync; base unless given
${serviceUsage}

${exitCodes}`;

/** Editors write in several steps: so long nothing may change before it is looked at. */
const calmMs = 200;

type Watched = Pick<Surroundings, 'print' | 'complain'> & {
  api: Api;
  folder: string;
  run: Omit<DeployedRun, 'print' | 'signal'> | undefined;
};

/** Ends with 0 when it is told to: by `ending`, else by SIGINT or SIGTERM. */
export async function devCommand(
  args: string[],
  { env, print, complain }: Surroundings = own,
  ending: AbortSignal = toldToEnd(),
): Promise<number> {
  const given = readArguments(args, {
    ...{ usage, print, maxPositionals: 1 },
    options: {
      ...serviceOptions,
      run: { type: 'string' },
      connection: { type: 'string' },
      input: { type: 'string' },
      variant: { type: 'string', default: 'base' },
    },
  });
  if (given === undefined) return 0;
  const { values } = given;
  const [folder = './functions'] = given.positionals;
  if (values.run === undefined && values.connection !== undefined)
    throw new UsageError('--connection goes with --run.');
  const run =
    values.run === undefined
      ? undefined
      : {
          target: readTarget(values.run),
          connectionId: required('--connection', values.connection),
          input: readJson('--input', values.input),
          variant: values.variant,
        };
  const watched = { api: openApi(settingsOf(values, env)), folder, run, print, complain };
  const changes = changesOf(folder, (error) => complain(error.message));
  try {
    while (!ending.aborted) {
      const change = changes.next();
      const stop = AbortSignal.any([ending, change]);
      await round(watched, stop).catch((error: Error) => {
        if (!stop.aborted) complain(error.message);
      });
      if (!stop.aborted) print('Waiting for a change.');
      await aborted(stop);
      if (!ending.aborted) await pause(calmMs, ending);
    }
  } finally {
    changes.close();
  }
  print('Ended.');
  return 0;
}

/** One save. The signal ends it early; a run that it started is cancelled then. */
async function round({ api, folder, run, print, complain }: Watched, signal: AbortSignal): Promise<void> {
  const functions = await compiled(folder, { complain, signal });
  if (functions === undefined) return complain('Nothing was deployed; what ran before goes on.');
  const deployed = await deployChanged(api, functions);
  if ('faults' in deployed) return deployed.faults.forEach(complain);
  for (const line of deployed.lines) print(line);
  print(deployed.lines.length > 0 ? `Deployed in ${api.url}.` : 'All is deployed already.');
  if (run === undefined || signal.aborted) return;
  const { integrationKey } = run.target;
  const headers = { 'connection-id': run.connectionId, 'provider-config-key': integrationKey };
  const of = { headers, variant: run.variant };
  const before = await positionsOf(api, of);
  print(`Running ${integrationKey}/${run.target.name} for ${run.connectionId}`);
  const { run: ended, output } = await runDeployed(api, { ...run, print, signal });
  for (const line of endOf(ended)) (ended.state === 'succeeded' ? print : complain)(line);
  if (output !== undefined) print(JSON.stringify(output, null, 2));
  for await (const line of changesSince(api, { ...of, before, models: Object.keys(ended.counts) }))
    print(line);
}

/** A signal for the next change of something that is no recording. */
function changesOf(folder: string, onError: (error: Error) => void): { next(): AbortSignal; close(): void } {
  let change = new AbortController();
  const watched = watchFolder(folder, {
    onError,
    onChange(file) {
      if (!file?.endsWith('.test.json')) change.abort();
    },
  });
  return {
    next() {
      change = new AbortController();
      try {
        watched.renew();
      } catch (error) {
        throw noFolder(folder, error);
      }
      return change.signal;
    },
    close: watched.close,
  };
}

/** The first signal ends in order, a second one at once. */
function toldToEnd(): AbortSignal {
  const ending = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => ending.abort());
  return ending.signal;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
