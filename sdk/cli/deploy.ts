/**
 * `trellis deploy`: a folder of functions as what a service runs.
 *
 * Does not own how they are compiled (`../compile/`), nor what the service takes.
 */
import { type Compiled, compile } from '../compile/compile.ts';
import { shown } from '../compile/fault.ts';
import { type Api, openApi } from './api.ts';
import {
  exitCodes,
  readArguments,
  serviceOptions,
  serviceUsage,
  settingsOf,
  UsageError,
} from './arguments.ts';
import { own, type Surroundings } from './surroundings.ts';
import { noFolder } from './target.ts';

const usage = `Usage: trellis deploy [FOLDER] [options]

Checks, bundles and deploys the functions of a folder (./functions), all or nothing.

  --dry-run          tell what would change, and change nothing
  --remove           remove functions of the folder's integrations that it does not hold
${serviceUsage}

${exitCodes}`;

/** The exit code: 1 where nothing was deployed because of a fault. */
export async function deployCommand(args: string[], surroundings: Surroundings = own): Promise<number> {
  const { env, print, complain } = surroundings;
  const given = readArguments(args, {
    ...{ usage, print, maxPositionals: 2 },
    options: { ...serviceOptions, 'dry-run': { type: 'boolean' }, remove: { type: 'boolean' } },
  });
  if (given === undefined) return 0;
  const { values } = given;
  const [folder = './functions', more] = given.positionals;
  if (more !== undefined) throw new UsageError(`One folder is deployed at a time: what is "${more}"?`);
  const api = openApi(settingsOf(values, env));
  const functions = await compiled(folder, { complain });
  if (functions === undefined) {
    complain('Nothing was deployed.');
    return 1;
  }
  const asked = await planOf(api, bodyOf(functions));
  if ('faults' in asked) {
    for (const line of asked.faults) complain(line);
    return 1;
  }
  const { isChanged, lines, removals } = asked;
  for (const line of lines) print(line);
  const isRemoving = values.remove === true && removals.length > 0;
  for (const line of removals)
    print(`${isRemoving ? '-' : ' '} ${line}${isRemoving ? '' : ' stays: --remove removes it'}`);
  if (!isChanged && !isRemoving) {
    print('All is deployed already.');
    return 0;
  }
  if (values['dry-run']) {
    print('Nothing was deployed: --dry-run.');
    return 0;
  }
  const done = await api.post('/sync/deploy', { ...bodyOf(functions), reconcile: isRemoving });
  if ('faults' in done) {
    for (const line of done.faults) complain(line);
    return 1;
  }
  print(`Deployed in ${api.url}.`);
  return 0;
}

/** All functions of a folder; undefined where there are faults, or none, which is told. Throws where there is no folder. */
export async function compiled(
  folder: string,
  { complain, signal }: { complain: (line: string) => void; signal?: AbortSignal },
): Promise<Compiled[] | undefined> {
  const { functions, faults, warnings } = await compile(folder, signal ? { signal } : {}).catch(
    (error: unknown) => {
      throw noFolder(folder, error);
    },
  );
  for (const warning of warnings) complain(warning);
  for (const fault of faults) complain(shown(fault));
  if (faults.length > 0) return undefined;
  if (functions.length > 0) return functions;
  complain(
    `There are no functions in ${folder}: they stand as <integration>/syncs/<name>.ts, or in actions or on-events.`,
  );
  return undefined;
}

/** Deploys what changed, and removes nothing; a line for each change. */
export async function deployChanged(
  api: Api,
  functions: readonly Compiled[],
): Promise<{ faults: string[] } | { lines: string[] }> {
  const body = bodyOf(functions);
  const plan = await planOf(api, body);
  if ('faults' in plan || !plan.isChanged) return plan;
  const done = await api.post('/sync/deploy', { ...body, reconcile: false });
  return 'faults' in done ? done : { lines: plan.lines };
}

function bodyOf(functions: readonly Compiled[]) {
  const fileBody = ({ code, source }: Compiled) => ({ js: code, ts: source });
  const scripts = functions.filter(({ kind }) => kind === 'on_event');
  const integrations = [...new Set(scripts.map(({ integrationKey }) => integrationKey))];
  return {
    flowConfigs: functions
      .filter(({ kind }) => kind !== 'on_event')
      .map((one) => ({
        ...{ syncName: one.name, providerConfigKey: one.integrationKey, type: one.kind },
        fileBody: fileBody(one),
      })),
    onEventScriptsByProvider: integrations.map((providerConfigKey) => ({
      providerConfigKey,
      scripts: scripts
        .filter(({ integrationKey }) => integrationKey === providerConfigKey)
        .map((one) => ({ name: one.name, fileBody: fileBody(one) })),
    })),
    deployMode: 'integration',
    reconcile: true,
  };
}

function tooLarge(faults: string[], body: ReturnType<typeof bodyOf>): { faults: string[] } {
  const sizes = body.flowConfigs.map(
    ({ providerConfigKey, type, syncName, fileBody }) =>
      [`${providerConfigKey}/${type}s/${syncName}`, fileBody.js.length] as const,
  );
  const megabytes = (characters: number) => `${(characters / 1_000_000).toFixed(1)} MB`;
  const largest = sizes.toSorted(([, a], [, b]) => b - a).slice(0, 3);
  const all = sizes.reduce((sum, [, size]) => sum + size, 0);
  return {
    faults: [
      ...faults,
      `The bundles have ${megabytes(all)}. The largest: ${largest.map(([name, size]) => `${name} ${megabytes(size)}`).join(', ')}.`,
      'Nothing was deployed.',
    ],
  };
}

type Named = { providerConfigKey: string; name: string };
const places = { Syncs: 'syncs', Actions: 'actions', OnEventScripts: 'on-events' };

async function planOf(
  api: Api,
  body: ReturnType<typeof bodyOf>,
): Promise<{ faults: string[] } | { isChanged: boolean; lines: string[]; removals: string[] }> {
  const answer = await api.post('/sync/deploy/confirmation', body);
  if ('faults' in answer) return answer.code === 'body_too_large' ? tooLarge(answer.faults, body) : answer;
  const plan = answer.body as Record<string, Named[]>;
  if (!Array.isArray(plan?.newSyncs))
    return { faults: [`What answers at ${api.url} is no Trellis. Nothing was deployed.`] };
  const titles = (how: string) =>
    Object.entries(places).flatMap(([kind, place]) =>
      (plan[`${how}${kind}`] ?? []).map((one) => `${one.providerConfigKey}/${place}/${one.name}`),
    );
  const lines = [
    ...titles('new').map((title) => `+ ${title}`),
    ...titles('updated').map((title) => `~ ${title}`),
  ];
  return { isChanged: lines.length > 0, lines, removals: titles('deleted') };
}
