import { UsageError } from '../../sdk/cli/arguments.ts';
import { type AuditVerdict, verifyAudit } from '../activity/audit-chain.ts';
import { loadConfigWithoutKeys } from '../config/config.ts';
import { withDatabase } from './database.ts';
import { createProgress } from './terminal.ts';

/**
 * `trellis audit verify`: checks that the audit log was not changed, also while the service runs. Prints the head, to keep
 * elsewhere. Exits with 1 if the log was changed.
 */
export async function verifyAuditCommand(options: { head?: string | undefined }): Promise<number> {
  const kept = options.head === undefined ? undefined : readHead(options.head);
  return withDatabase(loadConfigWithoutKeys(), async (db) => {
    const progress = createProgress(process.stderr);
    const verdict = await verifyAudit(db, {
      kept,
      onProgress: ({ proven, total }) => progress.show(`${proven} of ${total} entries read`),
    });
    progress.end();
    return print(verdict);
  });
}

function print({ proven, waiting, head, fault }: AuditVerdict): number {
  if (fault !== undefined) {
    console.error(
      `the audit log was changed, at position ${fault.position} (${fault.kind}): ${fault.message}`,
    );
    console.error(
      proven === 1
        ? '1 entry before that position is unchanged'
        : `${proven} entries before that position are unchanged`,
    );
    return 1;
  }
  console.log(`${proven} entries are unchanged`);
  if (waiting > 0)
    console.log(`${waiting} newer entries are not in the chain yet: a running service adds them immediately`);
  console.log(`head ${head.position}:${head.chain}`);
  return 0;
}

function readHead(text: string): { position: number; chain: string } {
  const [, position, chain] = /^(\d{1,15}):([0-9a-f]{64})$/.exec(text.trim().toLowerCase()) ?? [];
  if (position !== undefined && chain !== undefined) return { position: Number(position), chain };
  throw new UsageError(
    `--head "${text}" is not valid: give the value that an earlier check printed after "head".`,
  );
}
