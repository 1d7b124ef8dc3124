import { parseArgs } from 'node:util';
import { loadConfigWithoutKeys } from '../config/config.ts';
import type { Db } from '../db/pool.ts';
import { listNodes, type Node } from '../nodes/nodes.ts';
import { withDatabase } from './database.ts';
import { flag, oneLine } from './terminal.ts';

/** `trellis nodes [--json]`: exits with 1 if no node runs, or none of them does background work. */
export async function nodesCommand(args: string[]): Promise<number> {
  const { json } = parseArgs({ args, options: { json: flag } }).values;
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
    const { role, version, migration, startedAt, seenAt } = node;
    const state = node.isSilent ? `silent since ${seenAt.toISOString()}` : stateOf(node);
    const columns = [
      oneLine(node.name),
      role,
      version,
      migration.slice(0, 4),
      startedAt.toISOString(),
      state,
    ];
    console.log(columns.join('\t'));
  }
  if (isWhole(nodes)) return 0;
  console.error(
    'No node with the role worker or all runs, so functions, event deliveries and jobs do not run.',
  );
  return 1;
}

function toWire({ id, name, role, version, migration, startedAt, seenAt, ...node }: Node) {
  return {
    ...{ id, name, role, version, migration },
    started_at: startedAt.toISOString(),
    seen_at: seenAt.toISOString(),
    state: stateOf(node),
  };
}

function stateOf({ isSilent, isStopping }: Pick<Node, 'isSilent' | 'isStopping'>): string {
  return isSilent ? 'silent' : isStopping ? 'stopping' : 'runs';
}

function isWhole(nodes: readonly Node[]): boolean {
  return nodes.some(({ role, isSilent, isStopping }) => role !== 'api' && !isSilent && !isStopping);
}
