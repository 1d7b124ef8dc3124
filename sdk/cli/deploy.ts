/**
 * `trellis deploy`: deploys a folder of functions.
 *
 * Does not own their compilation (`../compile/`), nor the checks of the service.
 */
import { type Compilation, type Compiled, compile, compileWithoutFaulty } from '../compile/compile.ts';
import { type FunctionFile, folderOfKind, formatFault } from '../compile/files.ts';
import { type Api, createApi, type FieldFault } from './api.ts';
import { type CommandContext, environmentFor, processContext, type ServiceOptions } from './arguments.ts';
import { folderError } from './target.ts';

/** The exit code of a partial deploy that left functions out. */
const partlyDeployed = 3;

/** Returns the exit code: 1 if nothing was deployed because of a fault, 3 if functions with faults were left out. */
export async function deployCommand(
  folder: string,
  options: ServiceOptions & {
    dryRun?: true | undefined;
    remove?: true | undefined;
    partial?: true | undefined;
  },
  { env, print, printError }: CommandContext = processContext,
): Promise<number> {
  const api = createApi(environmentFor(options, env));
  const compiled = await (options.partial ? compileWithoutFaulty(folder) : compile(folder)).catch(
    rejectWithFolder(folder),
  );
  const functions = soundFunctions(compiled, { folder, printError });
  if (functions === undefined) {
    printError('Nothing was deployed.');
    return 1;
  }
  const { plan, accepted, refused } = await (options.partial
    ? fetchPartialPlan(api, functions, printError)
    : fetchPlanOfAll(api, functions));
  if ('faults' in plan) {
    for (const line of plan.faults) printError(line);
    return 1;
  }
  const leftOut = [...compiled.faulty, ...refused].map(pathOf);
  const { lines } = plan;
  const removals = plan.removals.filter((path) => !leftOut.includes(path));
  for (const path of leftOut) printError(`! ${path} is left out because of its faults`);
  const success = leftOut.length > 0 ? partlyDeployed : 0;
  for (const line of lines) print(line);
  const isRemoving = options.remove === true && removals.length > 0;
  for (const line of removals)
    print(`${isRemoving ? '-' : ' '} ${line}${isRemoving ? '' : ' is kept: --remove removes it'}`);
  if (lines.length === 0 && !isRemoving) {
    print('No changes.');
    return success;
  }
  if (options.dryRun) {
    print('Nothing was deployed: --dry-run.');
    return success;
  }
  const result = await api.post('/functions/deploys', { ...deployBody(accepted), reconcile: isRemoving });
  if ('faults' in result) {
    for (const line of result.faults) printError(line);
    return 1;
  }
  print(`Deployed to ${api.url}.`);
  return success;
}

/** Compiles a folder. Prints its faults and returns undefined if there are any, or no functions. Throws a UsageError. */
export async function compileFolder(
  folder: string,
  { printError, signal }: { printError: (line: string) => void; signal?: AbortSignal },
): Promise<Compiled[] | undefined> {
  const compiled = await compile(folder, signal ? { signal } : {}).catch(rejectWithFolder(folder));
  return soundFunctions(compiled, { folder, printError });
}

function rejectWithFolder(folder: string) {
  return (error: unknown): never => {
    throw folderError(folder, error);
  };
}

/** Prints warnings and faults. Returns undefined if there are no functions to deploy. */
function soundFunctions(
  { functions, faults, warnings }: Compilation,
  { folder, printError }: { folder: string; printError: (line: string) => void },
): Compiled[] | undefined {
  for (const warning of warnings) printError(warning);
  for (const fault of faults) printError(formatFault(fault));
  if (functions.length > 0) return functions;
  if (faults.length > 0) return undefined;
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
      .filter((one): one is Compiled & { kind: 'sync' | 'action' } => one.kind !== 'on_event')
      .map((compiled) => ({
        syncName: compiled.name,
        providerConfigKey: compiled.integrationKey,
        type: compiled.kind,
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
function tooLarge(faults: string[], body: ReturnType<typeof deployBody>): string[] {
  const sizes = body.flowConfigs.map(
    ({ providerConfigKey, type, syncName, fileBody }) =>
      [`${providerConfigKey}/${type}s/${syncName}`, fileBody.js.length] as const,
  );
  const megabytes = (characters: number) => `${(characters / 1_000_000).toFixed(1)} MB`;
  const largest = sizes.toSorted(([, a], [, b]) => b - a).slice(0, 3);
  const all = sizes.reduce((sum, [, size]) => sum + size, 0);
  return [
    ...faults,
    `The bundles have ${megabytes(all)} in total. The largest: ${largest.map(([name, size]) => `${name} ${megabytes(size)}`).join(', ')}.`,
    'Nothing was deployed.',
  ];
}

type DeployedFunction = { providerConfigKey: string; name: string };
/** The folder of each kind in the response of the service. */
const folders = { Syncs: 'syncs', Actions: 'actions', OnEventScripts: 'on-events' };

type Plan = Awaited<ReturnType<typeof fetchPlan>>;
type Planned = { plan: Plan; accepted: Compiled[]; refused: Compiled[] };

function pathOf({ integrationKey, kind, name }: FunctionFile): string {
  return `${integrationKey}/${folderOfKind[kind]}/${name}`;
}

async function fetchPlanOfAll(api: Api, functions: Compiled[]): Promise<Planned> {
  return { plan: await fetchPlan(api, deployBody(functions)), accepted: functions, refused: [] };
}

/** Leaves out the functions that the service refuses, and prints why, until it accepts all others or there are none. */
async function fetchPartialPlan(
  api: Api,
  functions: Compiled[],
  printError: (line: string) => void,
): Promise<Planned> {
  let accepted = functions;
  const refused: Compiled[] = [];
  for (;;) {
    const body = deployBody(accepted);
    const plan = await fetchPlan(api, body);
    const faults = 'errors' in plan ? plan.errors : [];
    const named = new Set(faults.map(({ path }) => pathInBody(body, path)));
    const faulty = accepted.filter((one) => named.has(pathOf(one)));
    refused.push(...faulty);
    if (faulty.length === 0 || faulty.length === accepted.length) return { plan, accepted, refused };
    for (const { message } of faults) printError(message);
    accepted = accepted.filter((one) => !faulty.includes(one));
  }
}

/** The path of the function that a fault of the service concerns. */
function pathInBody(
  { flowConfigs, onEventScriptsByProvider }: ReturnType<typeof deployBody>,
  [list, at, , script]: readonly string[],
): string | undefined {
  if (list === 'flowConfigs') {
    const flow = flowConfigs[Number(at)];
    return flow && `${flow.providerConfigKey}/${folderOfKind[flow.type]}/${flow.syncName}`;
  }
  const scripts = list === 'onEventScriptsByProvider' ? onEventScriptsByProvider[Number(at)] : undefined;
  const name = scripts?.scripts[Number(script)]?.name;
  return name && `${scripts?.providerConfigKey}/${folderOfKind.on_event}/${name}`;
}

/** Requests the changes that a deploy would make. */
async function fetchPlan(
  api: Api,
  body: ReturnType<typeof deployBody>,
): Promise<{ faults: string[]; errors: FieldFault[] } | { lines: string[]; removals: string[] }> {
  const result = await api.post('/functions/deploys/plan', body);
  if ('faults' in result)
    return result.code === 'body_too_large' ? { ...result, faults: tooLarge(result.faults, body) } : result;
  const plan = result.body as Record<string, DeployedFunction[]>;
  if (!Array.isArray(plan?.newSyncs))
    return { faults: [`The service at ${api.url} is not Trellis. Nothing was deployed.`], errors: [] };
  const paths = (change: string) =>
    Object.entries(folders).flatMap(([kind, folder]) =>
      (plan[`${change}${kind}`] ?? []).map((one) => `${one.providerConfigKey}/${folder}/${one.name}`),
    );
  const lines = [...paths('new').map((path) => `+ ${path}`), ...paths('updated').map((path) => `~ ${path}`)];
  return { lines, removals: paths('deleted') };
}
