import type { FileHandle } from 'node:fs/promises';
import { writeAudit } from '../../activity/audit.ts';
import type { Brand } from '../../brand.ts';
import { readImported } from '../../connections/import.ts';
import { type Db, retryOnViolation } from '../../db/pool.ts';
import { type Environment, ensureEnvironment } from '../../environments/store.ts';
import { startNewSyncs } from '../../functions/runs/schedule.ts';
import type { Integration, IntegrationReading } from '../../integrations/store.ts';
import { type Moved, movedSettings, storeMoved } from '../connections.ts';
import { IntegrationSkippedError } from '../datasets.ts';
import { closeImport, judge, look, note, type OpenImport, openImport, type Place } from '../ledger.ts';
import { reasonOf } from '../reason.ts';
import { countsOf, type Report, type Reported, recordsOf } from '../report.ts';
import { type Failed, type TakenDataset, takeDataset } from './datasets.ts';
import { type Entry, type EntryOf, entrySchema, linesOf } from './entries.ts';
import {
  type Taking,
  takeApiKey,
  takeEndpoint,
  takeRetention,
  takeSettings,
  takeSigningKeys,
  takeVariable,
} from './environment.ts';
import { takeIntegration } from './integrations.ts';
import { type Opened, openSealed } from './sealed.ts';

/**
 * An import of a file that runs. It is read from its beginning each time; what is here is found to be so and passed over,
 * record by record where they are many. What belongs together is one transaction with what the ledger says of it.
 */
export type FileRun = {
  db: Db;
  reading: IntegrationReading;
  brand: Brand;
  baseUrl: string;
  /** In place of the name in the file. */
  environmentName: string | undefined;
  overwrites: boolean;
  onProgress: (text: string) => void;
  /** Called before anything goes into an environment. */
  take: (environmentId: number) => Promise<void>;
  now: () => Date;
};

const sourceName = 'file';

/** A file that was read to its end, so that nothing is taken out of one that is cut off or damaged. */
export type ProvenFile = Opened & { counts: Record<string, number> };

/** Throws where it is not whole, or of another passphrase. */
export async function proveFile(
  file: FileHandle,
  { passphrase, onProgress }: { passphrase: string; onProgress: (text: string) => void },
): Promise<ProvenFile> {
  const opened = await openSealed(file, passphrase);
  let counts: Record<string, number> | undefined;
  let lines = 0;
  for await (const line of linesOf(opened.read())) {
    if (counts !== undefined) throw new Error('The file goes on after its end.');
    lines += 1;
    if (lines % 1_000 === 0) onProgress(`${lines} entries proven`);
    if (line.subarray(0, 13).toString() === '{"kind":"end"') {
      const end = entrySchema.parse(JSON.parse(line.toString('utf8')));
      counts = end.kind === 'end' ? end.counts : undefined;
    }
  }
  const listed = Object.values(counts ?? {}).reduce((sum, count) => sum + count, 0);
  if (counts === undefined || listed !== lines - 1) throw new Error('The file is not whole.');
  return { ...opened, counts };
}

/** Takes in what a file holds; a report for each environment. */
export async function runFile(run: FileRun, file: ProvenFile): Promise<Reported[]> {
  const done: Reported[] = [];
  let open: EnvironmentRun | undefined;
  let read = 0;
  for await (const line of linesOf(file.read())) {
    const entry = entrySchema.parse(JSON.parse(line.toString('utf8')));
    read += 1;
    if (read % 100 === 0) run.onProgress(`${read} entries taken in`);
    if (entry.kind === 'environment') {
      if (open !== undefined) done.push(await open.end());
      open = await EnvironmentRun.open(run, { name: entry.name, file });
    } else if (entry.kind !== 'end') await open?.take(entry, line.length);
  }
  if (open !== undefined) done.push(await open.end());
  return done;
}

/** Why what stands beside the records of a dataset stays out. */
const reasonsOfDatasets = {
  connection_differs: 'a connection of their ID is here that this file has not brought',
  integration_skipped: 'their integration was passed over',
};

class EnvironmentRun {
  readonly #run: FileRun;
  readonly #taking: Taking;
  readonly #from: OpenImport;
  readonly #report: Report;
  readonly #integrations = new Map<string, Integration>();
  readonly #failed: Failed[] = [];
  readonly #hasRecords: boolean;
  /** The connection whose datasets come; undefined where they are passed over. */
  #place: Place | undefined;
  #dataset: TakenDataset | undefined;

  private constructor(run: FileRun, given: { environment: Environment; from: OpenImport; file: ProvenFile }) {
    const { environment, from, file } = given;
    this.#run = run;
    this.#taking = { db: run.db, vault: run.reading.vault, environment, now: run.now() };
    this.#from = from;
    this.#hasRecords = file.head.contents.records;
    this.#report = {
      source: `file ${file.head.id} of ${file.head.made_at}`,
      environment: environment.name,
      dry_run: false,
      started_at: run.now().toISOString(),
      ended_at: run.now().toISOString(),
      broken_off: null,
      integrations: [],
      connections: [],
      records: null,
      doubts: [],
      next_steps: [],
    };
  }

  static async open(
    run: FileRun,
    { name, file }: { name: string; file: ProvenFile },
  ): Promise<EnvironmentRun> {
    const { db, reading } = run;
    const wanted = run.environmentName ?? name;
    const environment = await db.transaction(async (tx) => {
      const ensured = await ensureEnvironment(tx, { name: wanted, vault: reading.vault });
      if (ensured.created)
        await writeAudit(tx, {
          environmentId: undefined,
          actor: 'command line',
          action: 'environment.created',
          target: wanted,
        });
      return ensured.environment;
    });
    await run.take(environment.id);
    const source = `file ${file.head.id}`;
    const { overwrites } = run;
    const from = await openImport(db, { environmentId: environment.id, source, overwrites });
    return new EnvironmentRun(run, { environment, from, file });
  }

  /** `bytes` is what the entry has in the file. */
  async take(entry: Exclude<Entry, { kind: 'environment' | 'end' }>, bytes: number): Promise<void> {
    switch (entry.kind) {
      case 'settings':
        return this.#leave(await takeSettings(this.#taking, entry));
      case 'signing_keys':
        return this.#leave(await takeSigningKeys(this.#taking, entry));
      case 'variable':
        return this.#leave(await takeVariable(this.#taking, entry));
      case 'endpoint':
        return this.#leave(await takeEndpoint(this.#taking, entry));
      case 'api_key':
        return this.#leave(await takeApiKey(this.#taking, entry));
      case 'retention':
        if (entry.unique_key !== null && !this.#integrations.has(entry.unique_key)) return undefined;
        return this.#leave(await takeRetention(this.#taking, entry));
      case 'integration':
        return this.#takeIntegration(entry);
      case 'connection':
        await this.#endDataset();
        this.#place = (await this.#takeConnection(entry)) ? placeOf(entry) : undefined;
        return undefined;
      case 'dataset':
        await this.#endDataset();
        return this.#openDataset(entry);
      case 'record':
        return this.#dataset?.add(entry, bytes);
      case 'consumer':
        return this.#dataset?.place(entry.name);
    }
  }

  async end(): Promise<Reported> {
    await this.#endDataset();
    const { db, now, baseUrl } = this.#run;
    const { environment } = this.#taking;
    await db.transaction(async (tx) => {
      await startNewSyncs(tx, { environmentId: environment.id, at: now() });
      await closeImport(tx, this.#from);
    });
    const report = this.#report;
    report.connections = await countsOf(db, this.#from, undefined);
    const failed = this.#failed;
    for (const [reason, why] of Object.entries(reasonsOfDatasets)) {
      const count = failed.filter((one) => one.reason === reason).length;
      if (count > 0 && !this.#hasRecords)
        report.next_steps.push(`The settings and consumers of ${count} datasets stay out: ${why}.`);
    }
    if (this.#hasRecords) report.records = { ...(await recordsOf(db, this.#from, undefined)), failed };
    const clients = [...this.#integrations.values()].filter(
      ({ provider, isTest }) => provider.auth_mode === 'OAUTH2' && !isTest,
    );
    if (clients.length > 0)
      report.next_steps.push(
        `At the provider, add the redirect URI ${baseUrl}/oauth/callback to the OAuth clients of ` +
          `${clients.map(({ key }) => key).join(', ')}, unless it is there.`,
      );
    report.ended_at = now().toISOString();
    return { report, from: this.#from, only: undefined };
  }

  #leave(left: string | undefined): void {
    if (left !== undefined) this.#report.next_steps.push(left);
  }

  async #takeIntegration(entry: EntryOf<'integration'>): Promise<void> {
    const { db, reading } = this.#run;
    const at = { environmentId: this.#taking.environment.id, reading };
    const { reported, integration } = await takeIntegration(db, entry, at);
    this.#report.integrations.push(reported);
    if (integration !== undefined) this.#integrations.set(integration.key, integration);
  }

  /** Whether it is here, so that its datasets may follow. */
  async #takeConnection(entry: EntryOf<'connection'>): Promise<boolean> {
    const { db, overwrites } = this.#run;
    const place = placeOf(entry);
    const environmentId = this.#taking.environment.id;
    const [known] = await look(db, { environmentId, from: this.#from, places: [place], overwrites });
    const verdict = judge(known!, { overwrites });
    if (verdict !== 'import') {
      if (verdict !== known!.outcome) await note(db, this.#from, [{ ...place, outcome: verdict }]);
      return known!.isHere;
    }
    const integration = this.#integrations.get(place.integration);
    if (integration === undefined) {
      await note(db, this.#from, [{ ...place, outcome: 'skipped', reason: this.#whySkipped(place) }]);
      return known!.isHere;
    }
    try {
      await this.#store(movedFrom(entry, integration));
      return true;
    } catch (error) {
      const said = reasonOf(error);
      if (said === undefined) throw error;
      await note(db, this.#from, [{ ...place, outcome: 'failed', ...said }]);
      return known!.isHere;
    }
  }

  #whySkipped({ integration }: Place): string {
    const skipped = this.#report.integrations.find(({ unique_key: key }) => key === integration);
    return skipped?.reason ?? 'unknown_integration';
  }

  async #store(moved: Moved): Promise<void> {
    const { db, reading, overwrites, now } = this.#run;
    const storing = { reading, from: this.#from, sourceName, overwrites, at: now() };
    await retryOnViolation('connection_id_unique', () =>
      db.transaction((tx) => storeMoved(tx, moved, storing)),
    );
  }

  async #openDataset(entry: EntryOf<'dataset'>): Promise<void> {
    if (this.#place === undefined) return;
    const { db, brand, reading } = this.#run;
    const dataset = { ...this.#place, model: entry.model, variant: entry.variant };
    if (!this.#integrations.has(dataset.integration)) {
      this.#failed.push({ ...dataset, ...reasonOf(new IntegrationSkippedError(this.#whySkipped(dataset)))! });
      return;
    }
    this.#dataset = await takeDataset({
      ...{ db, vault: reading.vault, from: this.#from, metadataKey: brand.metadataKey, entry, dataset },
      onFailure: (failed) => this.#failed.push(failed),
    });
  }

  async #endDataset(): Promise<void> {
    await this.#dataset?.end();
    this.#dataset = undefined;
  }
}

function placeOf(entry: EntryOf<'connection'>): Place {
  return { integration: entry.unique_key, connection: entry.connection_id };
}

function movedFrom(entry: EntryOf<'connection'>, integration: Integration): Moved {
  const settings = movedSettings.parse({
    connectionId: entry.connection_id,
    metadata: entry.metadata,
    connectionConfig: entry.connection_config,
    tags: entry.tags,
    endUser: entry.end_user,
    webhookUrlOverride: entry.webhook_url_override,
  });
  const { account } = entry;
  return {
    ...settings,
    integration,
    credentials: readImported(integration, entry.credentials),
    grant: {
      account: account ? { id: account.id, email: account.email ?? undefined } : undefined,
      scopesRequested: entry.scopes_requested ?? undefined,
      scopesGranted: entry.scopes_granted ?? undefined,
      accessExpiresAt: entry.access_expires_at ?? undefined,
      refreshExpiresAt: entry.refresh_expires_at ?? undefined,
      keptTokens: entry.kept_tokens,
      grantedAt: entry.granted_at,
      refreshedAt: entry.refreshed_at,
    },
    createdAt: entry.created_at,
    state: { status: entry.status, fault: entry.fault, scopesLacking: entry.scopes_lacking ?? undefined },
  };
}
