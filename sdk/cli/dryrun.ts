/** `trellis dryrun`: the code of the folder on a connection, writing nothing. */
import { titleOf as callTitle, type Reads } from '../local/reads.ts';
import { runLocally } from '../local/run-locally.ts';
import { openApi } from './api.ts';
import { exitCodes, readArguments, serviceUsage, settingsOf } from './arguments.ts';
import { lineOf } from './follow-run.ts';
import { liveStored } from './live-reads.ts';
import { codeOf, folderOf, prepareLive, readGiven, runOptions } from './local-run.ts';
import { report } from './report.ts';
import { own, type Surroundings } from './surroundings.ts';
import { findTarget, readTarget, titleOf } from './target.ts';

export const runUsage = `  --connection ID    the connection it runs for
  --input JSON       the input of an action
  --checkpoint JSON  where it goes on; without it, it runs as for the first time
  --metadata JSON    in place of the connection's
  --variant NAME     the variant of a sync; base unless given
  --allow-writes     make calls to the provider other than GET, HEAD and OPTIONS, too
  --folder DIR       where the functions are; ./functions unless given`;

const usage = `Usage: trellis dryrun <integration>/<function> --connection ID [options]

Runs the function as it is in your folder, here, for a real connection. Records, checkpoints, metadata and locks are
shown and not written. What it reads, it reads by the service; nothing needs to be deployed.

${runUsage}
${serviceUsage}

${exitCodes}
A record that does not fit its model is a failure here.`;

/** The exit code: 1 where it threw, or what it gave does not fit what it declares. */
export async function dryrunCommand(args: string[], surroundings: Surroundings = own): Promise<number> {
  const { env, print, complain } = surroundings;
  const read = readArguments(args, { ...{ usage, print, maxPositionals: 1 }, options: runOptions });
  if (read === undefined) return 0;
  const { values, positionals } = read;
  const target = readTarget(positionals[0]);
  const given = readGiven(values);
  const folder = folderOf(values);
  const file = await findTarget(folder, target);
  const api = openApi(settingsOf(values, env));
  const code = await codeOf(folder, { file, complain });
  if (code === undefined) return 1;
  const live = await prepareLive(api, { file, given });
  const { about, metadata } = live;
  print(`${titleOf(file)} for ${given.connectionId}, dry run`);
  const end = await runLocally({
    ...{ code, kind: file.kind, about, metadata },
    input: given.input,
    checkpoint: given.checkpoint,
    stored: liveStored(api, { place: live.place, variant: given.variant }),
    reads: told(live.reads, print),
    log: (level, text) => print(lineOf(level, String(text))),
  });
  const isFine = end.outcome.error === undefined && end.misfits.length === 0;
  for (const line of report(end)) (isFine ? print : complain)(line);
  print(`Nothing was written${given.mayWrite ? ' but what the provider was asked to' : ''}.`);
  return isFine ? 0 : 1;
}

/** Says each call. */
function told(reads: Reads, print: (line: string) => void): Reads {
  return {
    ...reads,
    async call(call, signal) {
      const answer = await reads.call(call, signal);
      print(`  ${callTitle(call)} ${answer.value.status}`);
      return answer;
    },
  };
}
