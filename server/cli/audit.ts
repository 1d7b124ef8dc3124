import { parseArgs } from 'node:util';
import { type AuditVerdict, verifyAudit } from '../activity/audit-verify.ts';
import { loadConfigWithoutKeys } from '../config/config.ts';
import { createProgress } from './progress.ts';
import { withDatabase } from './reach-database.ts';

/**
 * `trellis audit verify [--head POSITION:HASH]`: whether the audit log is what was written; also while the service runs.
 * Prints the head, to be kept elsewhere. Exits with 1 where the log is not.
 */
export async function auditCommand(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: { head: { type: 'string' } },
  });
  if (positionals.length !== 1 || positionals[0] !== 'verify') {
    throw new Error('The command is: audit verify [--head POSITION:HASH].');
  }
  const kept = values.head === undefined ? undefined : readHead(values.head);
  return withDatabase(loadConfigWithoutKeys(), async (db) => {
    const progress = createProgress(process.stderr);
    const verdict = await verifyAudit(db, {
      kept,
      onProgress: ({ proven, total }) => progress.show(`${proven} of ${total} entries read`),
    });
    progress.end();
    return tell(verdict);
  });
}

function tell({ proven, waiting, head, fault }: AuditVerdict): number {
  if (fault !== undefined) {
    console.error(`NOT as it was written, at position ${fault.position} (${fault.kind}): ${fault.message}`);
    console.error(
      proven === 1 ? '1 entry before that is proven' : `${proven} entries before that are proven`,
    );
    return 1;
  }
  console.log(`${proven} entries are as they were written`);
  if (waiting > 0)
    console.log(`${waiting} are too young to be in the chain: a service that runs puts them there at once`);
  console.log(`head ${head.position}:${head.chain}`);
  return 0;
}

function readHead(text: string): { position: number; chain: string } {
  const [, position, chain] = /^(\d{1,15}):([0-9a-f]{64})$/.exec(text.trim().toLowerCase()) ?? [];
  if (position !== undefined && chain !== undefined) return { position: Number(position), chain };
  throw new Error(`--head: "${text}" is not what an earlier check printed after "head".`);
}
