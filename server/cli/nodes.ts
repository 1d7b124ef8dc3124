import { parseArgs } from 'node:util';
import { loadConfigWithoutKeys } from '../config/config.ts';
import type { Db } from '../db/pool.ts';
import { listNodes, type Node } from '../nodes/nodes.ts';
import { oneLine } from './one-line.ts';
import { withDatabase } from './reach-database.ts';

/** `trellis nodes [--json]`: exits with 1 where no node lives, or none that does what is due in the background. */
export async function nodesCommand(args: string[]): Promise<number> {
  const { json } = parseArgs({ args, options: { json: { type: 'boolean', default: false } } }).values;
  return withDatabase(loadConfigWithoutKeys(), json ? printJson : printTable);
}

async function printJson(db: Db): Promise<number> {
  const nodes = await listNodes(db);
  console.log(JSON.stringify(nodes.map(toWire), undefined, 2));
  return isWhole(nodes) ? 0 : 1;
}

/** A line for each, tabs between the columns. */
async function printTable(db: Db): Promise<number> {
  const nodes = await listNodes(db);
  console.log(['node', 'role', 'version', 'migration', 'started', 'state'].join('\t'));
  for (const node of nodes) {
    const { role, version, migration, startedAt } = node;
    console.log(
      [oneLine(node.name), role, version, migration.slice(0, 4), startedAt.toISOString(), stateOf(node)].join(
        '\t',
      ),
    );
  }
  if (isWhole(nodes)) return 0;
  console.error('No node lives that runs functions, delivers events and does the jobs.');
  return 1;
}

function toWire({ id, name, role, version, migration, startedAt, seenAt, ...node }: Node) {
  const state = node.isSilent ? 'silent' : node.isStopping ? 'stopping' : 'runs';
  return {
    ...{ id, name, role, version, migration },
    started_at: startedAt.toISOString(),
    seen_at: seenAt.toISOString(),
    state,
  };
}

function stateOf({ isSilent, isStopping, seenAt }: Node): string {
  if (isSilent) return `silent since ${seenAt.toISOString()}`;
  return isStopping ? 'stopping' : 'runs';
}

function isWhole(nodes: readonly Node[]): boolean {
  return nodes.some(({ role, isSilent, isStopping }) => role !== 'api' && !isSilent && !isStopping);
}
