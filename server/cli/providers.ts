import { setTimeout as sleep } from 'node:timers/promises';
import { loadConfigWithoutKeys } from '../config/config.ts';
import type { Db } from '../db/pool.ts';
import { listReloadAnswers, type ReloadAnswer, requestReload } from '../nodes/nodes.ts';
import { withDatabase } from './database.ts';
import { oneLine } from './terminal.ts';

/** Nodes look for requests every 5 s. */
const answeredWithinMs = 30_000;
const everyMs = 250;

/**
 * `trellis providers reload`: exits with 1 unless all running nodes use the new definitions. Each node reads its own folder,
 * so the command needs the database only.
 */
export function reloadProvidersCommand(): Promise<number> {
  return withDatabase(loadConfigWithoutKeys(), reload);
}

async function reload(db: Db): Promise<number> {
  const request = await requestReload(db);
  const until = performance.now() + answeredWithinMs;
  let answers = await listReloadAnswers(db, request);
  while (answers.some(({ hasAnswered }) => !hasAnswered) && performance.now() < until) {
    await sleep(everyMs);
    answers = await listReloadAnswers(db, request);
  }
  if (answers.length === 0) console.error('No node runs. The next start reads the definitions.');
  for (const answer of answers) console[isDone(answer) ? 'log' : 'error'](lineOf(answer));
  return answers.length > 0 && answers.every(isDone) ? 0 : 1;
}

function isDone({ hasAnswered, fault }: ReloadAnswer): boolean {
  return hasAnswered && fault === null;
}

function lineOf({ name, hasAnswered, fault }: ReloadAnswer): string {
  const node = oneLine(name);
  if (!hasAnswered)
    return `${node}: no answer within ${answeredWithinMs / 1000} s. A node of an older version reads definitions at its start only.`;
  return fault === null
    ? `${node}: the new definitions are in use`
    : `${node}: the previous definitions stay in use.\n${fault}`;
}
