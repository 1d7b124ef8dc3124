import { loadConfigWithoutKeys } from '../config/config.ts';
import { listNodes, type Node } from '../nodes/nodes.ts';
import { withDatabase } from './database.ts';
import { type JsonOption, oneLine, printJson } from './terminal.ts';

/** `trellis nodes`: exits with 1 if no node runs, or none of them does background work. */
export async function nodesCommand({ json }: JsonOption): Promise<number> {
  return withDatabase(loadConfigWithoutKeys(), async (db) => {
    const nodes = await listNodes(db);
    if (!json) return printTable(nodes);
    printJson(nodes.map(toWire));
    return isWhole(nodes) ? 0 : 1;
  });
}

/** A line for each, tabs between the columns. */
function printTable(nodes: readonly Node[]): number {
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
    id,
    name,
    role,
    version,
    migration,
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
