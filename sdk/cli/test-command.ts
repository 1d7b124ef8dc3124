/** `trellis test`: runs functions against recorded calls. `--record` creates a recording. */
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join, relative, resolve } from 'node:path';
import type { FunctionFile } from '../compile/files.ts';
import { nothingStored } from '../local/model-writes.ts';
import type { JsonObject } from '../local/outcome.ts';
import {
  type Clock,
  compareOutcomes,
  createRecorder,
  createReplay,
  createSteadyClock,
  inUtc,
  type Recording,
} from '../local/recording.ts';
import { type LocalEnd, type LocalRun, runLocally } from '../local/run-locally.ts';
import { createApi } from './api.ts';
import { type CommandContext, environmentFor, processContext, UsageError } from './arguments.ts';
import { getConnection } from './live-reads.ts';
import {
  bundleFunction,
  compileFunction,
  prepareLive,
  type RunValues,
  readRunOptions,
  report,
} from './local-run.ts';
import { findTarget, functionPath, functionsIn, readTarget } from './target.ts';

type RecordTarget = CommandContext & { folder: string; file: FunctionFile };

type TestValues = RunValues & { record?: true | undefined; case?: string | undefined };

/** Returns the exit code: 1 if a run differs from its recording. */
export async function testCommand(
  names: readonly string[],
  values: TestValues,
  context: CommandContext = processContext,
): Promise<number> {
  if (values.case !== undefined && !/^[\w-]+$/.test(values.case))
    throw new UsageError('--case may contain only letters, digits, _ and -.');
  const folder = resolve(values.folder);
  const files =
    names.length === 0
      ? await functionsIn(folder)
      : await Promise.all(names.map((one) => findTarget(folder, readTarget(one))));
  if (values.record) {
    const [file] = files;
    if (file === undefined || names.length !== 1)
      throw new UsageError('--record requires the name of one function.');
    return record({ ...context, folder, file }, values);
  }
  if (values.connection !== undefined) throw new UsageError('--connection requires --record.');
  return replayAll(context, { folder, files, only: values.case });
}

async function record(
  { folder, file, env, print, printError }: RecordTarget,
  values: TestValues,
): Promise<number> {
  const options = readRunOptions(values);
  const settings = environmentFor(values, env);
  const api = createApi(settings);
  const code = await compileFunction(folder, { file, printError });
  if (code === undefined) return 1;
  const live = await prepareLive(api, { file, options });
  const { about, metadata, connection } = live;
  const { input, checkpoint } = options;
  if (connection.credentials === undefined) {
    printError(
      'Nothing was recorded: the key lacks the scope connections:credentials, which is needed to remove credentials from the recording.',
    );
    return 1;
  }
  const { reads, addCredentials, finish } = createRecorder(live.reads, {
    connection,
    key: settings.TRELLIS_SECRET_KEY ?? '',
  });
  const recordedAt = new Date();
  const run = { code, kind: file.kind, about, input, metadata, checkpoint, reads };
  const clock = createSteadyClock(recordedAt.getTime(), (ms, fire) => setTimeout(fire, ms));
  const end = await runComparably(run, clock);
  const { outcome } = end;
  // The credentials may have been refreshed during the run.
  const current = await getConnection(api, live.ref);
  addCredentials((current.credentials ?? {}) as JsonObject);
  // An ActionError is a result of the action, so it is recorded.
  if (outcome.error !== undefined && outcome.error.code !== 'action_error') {
    for (const line of report(end)) printError(line);
    printError('Nothing was recorded: the function failed.');
    return 1;
  }
  const recording = finish({
    function: functionPath(file),
    recorded_at: recordedAt.toISOString(),
    about,
    metadata,
    checkpoint,
    outcome,
    ...(input !== undefined && { input }),
  });
  const faults = await replayDifferences({ code, file, recording });
  if (faults.length > 0) {
    for (const fault of faults) printError(`  ${fault}`);
    printError(
      'Nothing was recorded: a replay gives another result. The function may depend on random values.',
    );
    return 1;
  }
  const path = recordingPath(file, { folder, name: values.case });
  await writeFile(path, `${JSON.stringify(recording, null, 2)}\n`);
  for (const line of report({ ...end, outcome: recording.outcome })) print(line);
  print(
    `Recorded ${recording.calls.length} call(s) in ${relative(process.cwd(), path)}, with data of ${options.connectionId}.`,
  );
  return 0;
}

async function replayAll(
  { print, printError }: CommandContext,
  { folder, files, only }: { folder: string; files: FunctionFile[]; only: string | undefined },
): Promise<number> {
  let failed = 0;
  let passed = 0;
  for (const file of files) {
    for (const name of await caseNamesOf(file, folder)) {
      if (only !== undefined && name !== only) continue;
      const title = `${functionPath(file)}${name === undefined ? '' : `, ${name}`}`;
      const faults = await replayCase(file, { folder, name, printError });
      if (faults.length === 0) {
        passed += 1;
        print(`ok      ${title}`);
        continue;
      }
      failed += 1;
      printError(`FAILED  ${title}`);
      for (const fault of faults) printError(`  ${fault}`);
    }
  }
  if (passed + failed === 0) {
    printError(
      'There is no recording. Create one with trellis test <integration>/<function> --record --connection ID',
    );
    return 1;
  }
  print(`${passed} passed, ${failed} failed.`);
  return failed === 0 ? 0 : 1;
}

type Case = { folder: string; name: string | undefined; printError: (line: string) => void };

/** Returns the differences between a recording and its replay, one per line. */
async function replayCase(file: FunctionFile, { folder, name, printError }: Case): Promise<string[]> {
  const path = recordingPath(file, { folder, name });
  let recording: Recording;
  try {
    recording = JSON.parse(await readFile(path, 'utf8')) as Recording;
  } catch (error) {
    return [`${relative(process.cwd(), path)} cannot be read: ${(error as Error).message}`];
  }
  if (recording.version !== 1)
    return [`${relative(process.cwd(), path)} is not a recording of this version.`];
  const code = await bundleFunction(folder, { file, printError });
  return code === undefined
    ? ['The function does not compile.']
    : replayDifferences({ code, file, recording });
}

/** The differences between a recording and a run of the code, one per line. */
async function replayDifferences({
  code,
  file,
  recording,
}: {
  code: string;
  file: FunctionFile;
  recording: Recording;
}): Promise<string[]> {
  const { about, input, metadata, checkpoint } = recording;
  const reads = createReplay(recording);
  const run = { code, kind: file.kind, about, input, metadata, checkpoint, reads };
  const clock = createSteadyClock(Date.parse(recording.recorded_at), (_ms, fire) => setTimeout(fire, 0));
  const { outcome, locations } = await runComparably(run, clock);
  const found = [...reads.faults(), ...compareOutcomes(recording.outcome, outcome)];
  return found.length > 0 && outcome.error !== undefined
    ? [...found, ...locations.map((location) => `at ${location}`)]
    : found;
}

/** Runs a function on an empty cache, in UTC and on the given clock, so that equal runs have equal outcomes. */
function runComparably(run: Omit<LocalRun, 'stored' | 'log' | 'globals'>, globals: Clock): Promise<LocalEnd> {
  return inUtc(() => runLocally({ ...run, stored: nothingStored, log: () => {}, globals }));
}

function recordingPath(
  { file }: FunctionFile,
  { folder, name }: { folder: string; name: string | undefined },
): string {
  return join(folder, file.replace(/\.ts$/, `${name === undefined ? '' : `.${name}`}.test.json`));
}

/** The case names of a function's recordings; undefined for the recording without a name. */
async function caseNamesOf(file: FunctionFile, folder: string): Promise<(string | undefined)[]> {
  const names = (await readdir(dirname(join(folder, file.file)))).toSorted();
  return names.flatMap((one) => {
    const [, name, , caseName] = /^([^.]+)(\.([\w-]+))?\.test\.json$/.exec(one) ?? [];
    return name === file.name ? [caseName] : [];
  });
}
