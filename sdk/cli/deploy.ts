/**
 * `trellis deploy`: a folder of functions as what a service runs.
 *
 * Does not own how they are compiled (`../compile/`), nor what the service takes.
 */
import { parseArgs } from 'node:util';
import { type Compiled, compile } from '../compile/compile.ts';
import { shown } from '../compile/fault.ts';
import { type Api, openApi } from './api.ts';

/** Where it works: the process's own, or a test's. */
export type Surroundings = {
  env: Readonly<Record<string, string | undefined>>;
  print: (line: string) => void;
  complain: (line: string) => void;
};
const own: Surroundings = {
  env: process.env,
  print: (line) => console.log(line),
  complain: (line) => console.error(line),
};

/** The exit code: 1 where nothing was deployed because of a fault. */
export async function deployCommand(
  args: string[],
  { env, print, complain }: Surroundings = own,
): Promise<number> {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: { 'dry-run': { type: 'boolean' }, remove: { type: 'boolean' } },
  });
  const [folder = './functions', more] = positionals;
  if (more !== undefined) throw new Error(`One folder is deployed at a time: what is "${more}"?`);
  const api = openApi(env);
  const { functions, faults, warnings } = await compile(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') throw new Error(`There is no folder ${folder}.`);
    throw error;
  });
  for (const warning of warnings) complain(warning);
  for (const fault of faults) complain(shown(fault));
  if (faults.length > 0) {
    complain(`Nothing was deployed: ${faults.length} fault(s).`);
    return 1;
  }
  if (functions.length === 0) {
    complain(
      `There are no functions in ${folder}: they stand as <integration>/syncs/<name>.ts, or in actions or on-events.`,
    );
    return 1;
  }
  const body = bodyOf(functions);
  const asked = await planOf(api, body);
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
  const done = await api.post('/sync/deploy', { ...body, reconcile: isRemoving });
  if ('faults' in done) {
    for (const line of done.faults) complain(line);
    return 1;
  }
  print(`Deployed in ${api.url}.`);
  return 0;
}

function bodyOf(functions: readonly Compiled[]) {
  const flows = functions.filter(({ kind }) => kind !== 'on_event');
  const events = Map.groupBy(
    functions.filter(({ kind }) => kind === 'on_event'),
    ({ integrationKey }) => integrationKey,
  );
  const fileBody = ({ code, source }: Compiled) => ({ js: code, ts: source });
  return {
    flowConfigs: flows.map((one) => ({
      ...{
        syncName: one.name,
        providerConfigKey: one.integrationKey,
        type: one.kind,
        fileBody: fileBody(one),
      },
    })),
    onEventScriptsByProvider: [...events].map(([providerConfigKey, scripts]) => ({
      providerConfigKey,
      scripts: scripts.map((one) => ({ name: one.name, fileBody: fileBody(one) })),
    })),
    deployMode: 'integration',
    reconcile: true,
  };
}

type Named = { providerConfigKey: string; name: string };
const places = { Syncs: 'syncs', Actions: 'actions', OnEventScripts: 'on-events' };

async function planOf(
  api: Api,
  body: object,
): Promise<{ faults: string[] } | { isChanged: boolean; lines: string[]; removals: string[] }> {
  const answer = await api.post('/sync/deploy/confirmation', body);
  if ('faults' in answer) return answer;
  const plan = answer.body as Record<string, Named[]>;
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
