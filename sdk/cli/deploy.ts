/**
 * `trellis deploy`: deploys a folder of functions.
 *
 * Does not own their compilation (`../compile/`), nor the checks of the service.
 */
import { type Compiled, compile } from '../compile/compile.ts';
import { formatFault } from '../compile/files.ts';
import { type Api, createApi } from './api.ts';
import { type CommandContext, environmentFor, processContext, type ServiceOptions } from './arguments.ts';
import { folderError } from './target.ts';

/** Returns the exit code: 1 if nothing was deployed because of a fault. */
export async function deployCommand(
  folder: string,
  options: ServiceOptions & { dryRun?: true | undefined; remove?: true | undefined },
  { env, print, printError }: CommandContext = processContext,
): Promise<number> {
  const api = createApi(environmentFor(options, env));
  const functions = await compileFolder(folder, { printError });
  if (functions === undefined) {
    printError('Nothing was deployed.');
    return 1;
  }
  const plan = await fetchPlan(api, deployBody(functions));
  if ('faults' in plan) {
    for (const line of plan.faults) printError(line);
    return 1;
  }
  const { lines, removals } = plan;
  for (const line of lines) print(line);
  const isRemoving = options.remove === true && removals.length > 0;
  for (const line of removals)
    print(`${isRemoving ? '-' : ' '} ${line}${isRemoving ? '' : ' is kept: --remove removes it'}`);
  if (lines.length === 0 && !isRemoving) {
    print('No changes.');
    return 0;
  }
  if (options.dryRun) {
    print('Nothing was deployed: --dry-run.');
    return 0;
  }
  const result = await api.post('/functions/deploys', { ...deployBody(functions), reconcile: isRemoving });
  if ('faults' in result) {
    for (const line of result.faults) printError(line);
    return 1;
  }
  print(`Deployed to ${api.url}.`);
  return 0;
}

/** Compiles a folder. Prints its faults and returns undefined if there are any, or no functions. Throws a UsageError. */
export async function compileFolder(
  folder: string,
  { printError, signal }: { printError: (line: string) => void; signal?: AbortSignal },
): Promise<Compiled[] | undefined> {
  const { functions, faults, warnings } = await compile(folder, signal ? { signal } : {}).catch(
    (error: unknown) => {
      throw folderError(folder, error);
    },
  );
  for (const warning of warnings) printError(warning);
  for (const fault of faults) printError(formatFault(fault));
  if (faults.length > 0) return undefined;
  if (functions.length > 0) return functions;
  printError(
    `There are no functions in ${folder}. Their files are <integration>/{syncs,actions,on-events}/<name>.ts.`,
  );
  return undefined;
}

/** Deploys the changes without removing functions. Returns a line for each change. */
export async function deployChanged(
  api: Api,
  functions: readonly Compiled[],
): Promise<{ faults: string[] } | { lines: string[] }> {
  const body = deployBody(functions);
  const plan = await fetchPlan(api, body);
  if ('faults' in plan || plan.lines.length === 0) return plan;
  const result = await api.post('/functions/deploys', { ...body, reconcile: false });
  return 'faults' in result ? result : { lines: plan.lines };
}

function deployBody(functions: readonly Compiled[]) {
  const fileBody = ({ code, source }: Compiled) => ({ js: code, ts: source });
  const scripts = functions.filter(({ kind }) => kind === 'on_event');
  const integrations = [...new Set(scripts.map(({ integrationKey }) => integrationKey))];
  return {
    flowConfigs: functions
      .filter(({ kind }) => kind !== 'on_event')
      .map((compiled) => ({
        ...{ syncName: compiled.name, providerConfigKey: compiled.integrationKey, type: compiled.kind },
        fileBody: fileBody(compiled),
      })),
    onEventScriptsByProvider: integrations.map((providerConfigKey) => ({
      providerConfigKey,
      scripts: scripts
        .filter(({ integrationKey }) => integrationKey === providerConfigKey)
        .map((compiled) => ({ name: compiled.name, fileBody: fileBody(compiled) })),
    })),
    deployMode: 'integration',
    reconcile: true,
  };
}

/** Adds the sizes of the largest bundles to the errors of a body that is too large. */
function tooLarge(faults: string[], body: ReturnType<typeof deployBody>): { faults: string[] } {
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
      `The bundles have ${megabytes(all)} in total. The largest: ${largest.map(([name, size]) => `${name} ${megabytes(size)}`).join(', ')}.`,
      'Nothing was deployed.',
    ],
  };
}

type DeployedFunction = { providerConfigKey: string; name: string };
/** The folder of each kind in the response of the service. */
const folders = { Syncs: 'syncs', Actions: 'actions', OnEventScripts: 'on-events' };

/** Requests the changes that a deploy would make. */
async function fetchPlan(
  api: Api,
  body: ReturnType<typeof deployBody>,
): Promise<{ faults: string[] } | { lines: string[]; removals: string[] }> {
  const result = await api.post('/functions/deploys/plan', body);
  if ('faults' in result) return result.code === 'body_too_large' ? tooLarge(result.faults, body) : result;
  const plan = result.body as Record<string, DeployedFunction[]>;
  if (!Array.isArray(plan?.newSyncs))
    return { faults: [`The service at ${api.url} is not Trellis. Nothing was deployed.`] };
  const paths = (change: string) =>
    Object.entries(folders).flatMap(([kind, folder]) =>
      (plan[`${change}${kind}`] ?? []).map((one) => `${one.providerConfigKey}/${folder}/${one.name}`),
    );
  const lines = [...paths('new').map((path) => `+ ${path}`), ...paths('updated').map((path) => `~ ${path}`)];
  return { lines, removals: paths('deleted') };
}
