/** `trellis test`: functions against recorded calls; `--record` makes the recording. */
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import type { FunctionFile } from '../compile/files.ts';
import { inUtc, steadyClock } from '../local/clock.ts';
import { differences } from '../local/differences.ts';
import { nothingStored } from '../local/model-writes.ts';
import type { JsonObject } from '../local/outcome.ts';
import { type Recording, recorder, replay } from '../local/recording.ts';
import { runLocally } from '../local/run-locally.ts';
import { openApi } from './api.ts';
import { exitCodes, readArguments, serviceUsage, settingsOf, UsageError } from './arguments.ts';
import { runUsage } from './dryrun.ts';
import { getConnection } from './live-reads.ts';
import {
  bundleOf,
  codeOf,
  folderOf,
  prepareLive,
  type RunValues,
  readGiven,
  runOptions,
} from './local-run.ts';
import { report } from './report.ts';
import { own, type Surroundings } from './surroundings.ts';
import { findTarget, functionsIn, readTarget, titleOf } from './target.ts';

const usage = `Usage: trellis test [<integration>/<function>]... [--folder DIR] [--case NAME]
       trellis test <integration>/<function> --record --connection ID [options]

Runs functions against their recordings, without a service and without a network, and compares what they saved and
answered with what was recorded. Recordings stand beside the functions as <function>.test.json, further ones as
<function>.<case>.test.json. A call that was not recorded, or was recorded and not made, is a failure.

With --record it runs the function once for a real connection, on an empty cache, and stores each call with its answer.
Credentials, the key and headers of authorization are replaced by names. What the provider answered is stored as it is:
it is data of that account, so choose an account whose data may lie beside your code.

  --record           make the recording, or replace it
  --case NAME        of this recording alone
${runUsage}
${serviceUsage}

${exitCodes}`;

type Order = Surroundings & { folder: string; file: FunctionFile };

/** The exit code: 1 where something differs. */
export async function testCommand(args: string[], surroundings: Surroundings = own): Promise<number> {
  const { print } = surroundings;
  const read = readArguments(args, {
    ...{ usage, print, maxPositionals: 1_000 },
    options: { ...runOptions, record: { type: 'boolean', default: false }, case: { type: 'string' } },
  });
  if (read === undefined) return 0;
  const { values, positionals } = read;
  if (values.case !== undefined && !/^[\w-]+$/.test(values.case))
    throw new UsageError('--case may hold letters, digits, _ and -.');
  const folder = folderOf(values);
  const files =
    positionals.length === 0
      ? await functionsIn(folder)
      : await Promise.all(positionals.map((one) => findTarget(folder, readTarget(one))));
  if (values.record) {
    const [file] = files;
    if (file === undefined || positionals.length !== 1)
      throw new UsageError('One function is recorded at a time: name it.');
    return record({ ...surroundings, folder, file }, values);
  }
  if (values.connection !== undefined) throw new UsageError('--connection goes with --record alone.');
  return replayAll(surroundings, { folder, files, only: values.case });
}

async function record(
  { folder, file, env, print, complain }: Order,
  values: RunValues & {
    url?: string | undefined;
    'env-file'?: string | undefined;
    case?: string | undefined;
  },
): Promise<number> {
  const given = readGiven(values);
  const settings = settingsOf(values, env);
  const api = openApi(settings);
  const code = await codeOf(folder, { file, complain });
  if (code === undefined) return 1;
  const live = await prepareLive(api, { file, given });
  const { about, metadata, connection } = live;
  const { input, checkpoint } = given;
  if (connection.credentials === undefined) {
    complain(
      'Nothing was recorded: the key lacks the scope connections:credentials, and what it is not told cannot be left out.',
    );
    return 1;
  }
  const { reads, renewed, finish } = recorder(live.reads, {
    connection,
    key: settings.TRELLIS_SECRET_KEY ?? '',
  });
  const recordedAt = new Date();
  const end = await inUtc(() =>
    runLocally({
      ...{ code, kind: file.kind, about, input, metadata, checkpoint, reads },
      stored: nothingStored,
      log: () => {},
      globals: steadyClock(recordedAt.getTime(), (ms, fire) => setTimeout(fire, ms)),
    }),
  );
  const { outcome } = end;
  const now = await getConnection(api, live.place);
  renewed((now.credentials ?? {}) as JsonObject);
  // What an action throws on purpose is an answer of its.
  if (outcome.error !== undefined && outcome.error.code !== 'action_error') {
    for (const line of report(end)) complain(line);
    complain('Nothing was recorded: the function failed.');
    return 1;
  }
  const recording = finish({
    ...{
      function: titleOf(file),
      recorded_at: recordedAt.toISOString(),
      about,
      metadata,
      checkpoint,
      outcome,
    },
    ...(input !== undefined && { input }),
  });
  const faults = await faultsOf({ code, file, recording });
  if (faults.length > 0) {
    for (const fault of faults) complain(`  ${fault}`);
    complain(
      'Nothing was recorded: played back, the function does something else. Does it depend on chance?',
    );
    return 1;
  }
  const path = recordingOf(file, { folder, name: values.case });
  await writeFile(path, `${JSON.stringify(recording, null, 2)}\n`);
  for (const line of report({ ...end, outcome: recording.outcome })) print(line);
  print(
    `Recorded ${recording.calls.length} call(s) in ${relative(process.cwd(), path)}, with data of ${given.connectionId}.`,
  );
  return 0;
}

async function replayAll(
  { print, complain }: Surroundings,
  { folder, files, only }: { folder: string; files: FunctionFile[]; only: string | undefined },
): Promise<number> {
  let failed = 0;
  let passed = 0;
  for (const file of files) {
    for (const name of await casesOf(file, folder)) {
      if (only !== undefined && name !== only) continue;
      const title = `${titleOf(file)}${name === undefined ? '' : `, ${name}`}`;
      const faults = await played(file, { folder, name, complain });
      if (faults.length === 0) {
        passed += 1;
        print(`ok      ${title}`);
        continue;
      }
      failed += 1;
      complain(`FAILED  ${title}`);
      for (const fault of faults) complain(`  ${fault}`);
    }
  }
  if (passed + failed === 0) {
    complain(
      'There is no recording: make one with trellis test <integration>/<function> --record --connection ID',
    );
    return 1;
  }
  print(`${passed} passed, ${failed} failed.`);
  return failed === 0 ? 0 : 1;
}

type Case = { folder: string; name: string | undefined; complain: (line: string) => void };

async function played(file: FunctionFile, { folder, name, complain }: Case): Promise<string[]> {
  const path = recordingOf(file, { folder, name });
  let recording: Recording;
  try {
    recording = JSON.parse(await readFile(path, 'utf8')) as Recording;
  } catch (error) {
    return [`${relative(process.cwd(), path)} cannot be read: ${(error as Error).message}`];
  }
  if (recording.version !== 1) return [`${relative(process.cwd(), path)} is no recording of this version.`];
  const code = await bundleOf(folder, { file, complain });
  return code === undefined ? ['It does not compile.'] : faultsOf({ code, file, recording });
}

/** What a run of the code does otherwise than the recording. */
async function faultsOf({
  code,
  file,
  recording,
}: {
  code: string;
  file: FunctionFile;
  recording: Recording;
}): Promise<string[]> {
  const { about, input, metadata, checkpoint } = recording;
  const reads = replay(recording);
  const end = await inUtc(() =>
    runLocally({
      ...{ code, kind: file.kind, about, input, metadata, checkpoint, reads },
      stored: nothingStored,
      log: () => {},
      globals: steadyClock(Date.parse(recording.recorded_at), (_ms, fire) => setTimeout(fire, 0)),
    }),
  );
  const { outcome, places } = end;
  const found = [...reads.faults(), ...differences(recording.outcome, outcome)];
  return found.length > 0 && outcome.error !== undefined
    ? [...found, ...places.map((at) => `at ${at}`)]
    : found;
}

function recordingOf(
  { file }: FunctionFile,
  { folder, name }: { folder: string; name: string | undefined },
): string {
  return join(folder, file.replace(/\.ts$/, `${name === undefined ? '' : `.${name}`}.test.json`));
}

/** The names of a function's recordings; undefined is the one without a name. */
async function casesOf(file: FunctionFile, folder: string): Promise<(string | undefined)[]> {
  const names = (await readdir(dirname(join(folder, file.file)))).toSorted();
  return names.flatMap((one) => {
    const [, name, , kase] = /^([^.]+)(\.([\w-]+))?\.test\.json$/.exec(one) ?? [];
    return name === file.name ? [kase] : [];
  });
}
