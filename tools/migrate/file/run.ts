import type { FileHandle } from 'node:fs/promises';
import { writeCommandAudit } from '../../../server/activity/audit.ts';
import { modeNamed } from '../../../server/auth-modes/modes.ts';
import type { Brand } from '../../../server/brand.ts';
import { readImported } from '../../../server/connections/import.ts';
import type { Db } from '../../../server/db/pool.ts';
import { ensureEnvironment, getEnvironment, listEnvironments } from '../../../server/environments/store.ts';
import { startNewSyncs } from '../../../server/functions/runs/schedule.ts';
import type { Integration, IntegrationReading } from '../../../server/integrations/store.ts';
import type { ProviderDefinition } from '../../../server/providers/definition.ts';
import { setDatasetSettings } from '../../../server/records/datasets.ts';
import { type ImportedConnection, importConnection, importedSettings } from '../connections.ts';
import { type ImportedDataset, type ImportedRecord, integrationSkipped, openDataset } from '../datasets.ts';
import {
  type ConnectionRef,
  closeImport,
  countRecords,
  type DatasetRef,
  decide,
  findImport,
  findKnown,
  type ImportRun,
  openImport,
  saveOutcomes,
} from '../ledger.ts';
import {
  addOutcome,
  completeReport,
  type FailedDataset,
  failureOf,
  newReport,
  type Report,
  type Reported,
} from '../report.ts';
import { type Entry, type EntryOf, entrySchema, linesOf } from './entries.ts';
import {
  type EnvironmentImport,
  importApiKey,
  importEndpoint,
  importRetention,
  importSettings,
  importSigningKeys,
  importVariable,
} from './environment.ts';
import { importIntegration, planIntegration } from './integrations.ts';
import { importProvider, planProvider } from './providers.ts';
import { type OpenedFile, openSealed } from './sealed.ts';

/**
 * An import of a file. Each run reads it from the beginning and passes over what is here, record by record in large
 * datasets. Each connection and each batch of records is one transaction with its entry in the ledger.
 */
export type FileRun = {
  db: Db;
  reading: IntegrationReading;
  brand: Brand;
  baseUrl: string;
  /** Replaces the name in the file. */
  environmentName: string | undefined;
  overwrites: boolean;
  onProgress: (text: string) => void;
  /** Called before the first write to an environment. */
  take: (environmentId: number) => Promise<void>;
  now: () => Date;
};

/** A file that was read to its end, so nothing is imported from a truncated or damaged one. */
export type ProvenFile = OpenedFile & { counts: Record<string, number> };

/** Throws if the file is not complete, or has another passphrase. */
export async function proveFile(
  file: FileHandle,
  { passphrase, onProgress }: { passphrase: string; onProgress: (text: string) => void },
): Promise<ProvenFile> {
  const opened = await openSealed(file, passphrase);
  let counts: Record<string, number> | undefined;
  let lines = 0;
  for await (const line of linesOf(opened.read())) {
    if (counts !== undefined) throw new Error('The file continues after its end.');
    lines += 1;
    if (lines % 1_000 === 0) onProgress(`${lines} entries verified`);
    if (line.subarray(0, 13).toString() === '{"kind":"end"') {
      const end = parseEntry(line);
      counts = end.kind === 'end' ? end.counts : undefined;
    }
  }
  const listed = Object.values(counts ?? {}).reduce((sum, count) => sum + count, 0);
  if (counts === undefined || listed !== lines - 1) throw new Error('The file is incomplete.');
  return { ...opened, counts };
}

function parseEntry(line: Buffer): Entry {
  return entrySchema.parse(JSON.parse(line.toString('utf8')));
}

function sourceOf({ head }: ProvenFile): string {
  return `file ${head.id}`;
}

function reportOf(
  { now }: Pick<FileRun, 'now'>,
  { file, environment, isDryRun }: { file: ProvenFile; environment: string; isDryRun: boolean },
): Report {
  const source = `${sourceOf(file)} of ${file.head.made_at}`;
  return newReport({ source, environment, dry_run: isDryRun, startedAt: now() });
}

/** What an import of the file would do, by environment; nothing is changed. */
export async function tryFile(
  run: Pick<FileRun, 'db' | 'reading' | 'environmentName' | 'overwrites' | 'now'>,
  file: ProvenFile,
): Promise<Reported[]> {
  const { db, reading, overwrites } = run;
  const names = new Set((await listEnvironments(db)).map(({ name }) => name));
  const reports: Report[] = [];
  let environmentId: number | undefined;
  let definitions = new Map<string, ProviderDefinition | undefined>();
  for await (const line of linesOf(file.read())) {
    // There may be many records, and they are not in the report.
    if (line.subarray(0, 16).toString() === '{"kind":"record"') continue;
    const entry = parseEntry(line);
    const report = reports.at(-1);
    if (entry.kind === 'environment') {
      const name = run.environmentName ?? entry.name;
      const opened = reportOf(run, { file, environment: name, isDryRun: true });
      environmentId = names.has(name) ? (await getEnvironment(db, name)).id : undefined;
      if (environmentId === undefined) opened.next_steps.push(`the environment ${name} would be created`);
      reports.push(opened);
      definitions = new Map();
    } else if (report !== undefined && entry.kind === 'provider') {
      const { read, step } = await planProvider(db, entry, { environmentId, reading });
      definitions.set(entry.name, read?.definition);
      if (step !== undefined) report.next_steps.push(step);
    } else if (report !== undefined && entry.kind === 'integration')
      report.integrations.push(await planIntegration(db, entry, { environmentId, reading, definitions }));
    else if (report !== undefined && entry.kind === 'connection') {
      // No environment has the ID 0.
      const at = { environmentId: environmentId ?? 0 };
      const from = await findImport(db, { ...at, source: sourceOf(file) });
      const [known] = await findKnown(db, { ...at, from, refs: [refOf(entry)], overwrites });
      const decision = decide(known!, { overwrites });
      const skipped = report.integrations.find(
        (one) => one.unique_key === entry.unique_key && one.outcome === 'skipped',
      );
      if (decision !== 'import') addOutcome(report, decision);
      else addOutcome(report, skipped ? 'skipped' : 'to_import', skipped?.reason ?? undefined);
    }
  }
  return reports.map((report) => ({ report, from: undefined, filter: undefined }));
}

/** Imports the contents of a file; a report for each environment. */
export async function runFile(run: FileRun, file: ProvenFile): Promise<Reported[]> {
  const done: Reported[] = [];
  let open: EnvironmentRun | undefined;
  let read = 0;
  for await (const line of linesOf(file.read())) {
    const entry = parseEntry(line);
    read += 1;
    if (read % 100 === 0) run.onProgress(`${read} entries imported`);
    if (entry.kind === 'environment') {
      if (open !== undefined) done.push(await open.end());
      open = await EnvironmentRun.open(run, { name: entry.name, file });
    } else if (entry.kind !== 'end') await open?.add(entry, line.length);
  }
  if (open !== undefined) done.push(await open.end());
  return done;
}

/** Why the settings and consumers of a dataset are not imported. */
const reasonsOfDatasets = {
  connection_differs: 'a connection with the same ID exists and was not imported from this file',
  integration_skipped: 'their integration was skipped',
};

class EnvironmentRun {
  readonly #run: FileRun;
  readonly #environment: EnvironmentImport;
  readonly #from: ImportRun;
  readonly #report: Report;
  readonly #definitions = new Map<string, ProviderDefinition | undefined>();
  readonly #integrations = new Map<string, Integration>();
  readonly #failed: FailedDataset[] = [];
  readonly #hasRecords: boolean;
  /** The connection whose datasets follow; undefined if they are skipped. */
  #connection: ConnectionRef | undefined;
  #dataset: DatasetReader | undefined;

  private constructor(
    run: FileRun,
    given: { environment: EnvironmentImport; from: ImportRun; file: ProvenFile },
  ) {
    const { environment, from, file } = given;
    this.#run = run;
    this.#environment = environment;
    this.#from = from;
    this.#hasRecords = file.head.contents.records;
    const { name } = environment.environment;
    this.#report = reportOf(run, { file, environment: name, isDryRun: false });
  }

  static async open(
    run: FileRun,
    { name, file }: { name: string; file: ProvenFile },
  ): Promise<EnvironmentRun> {
    const { db, reading, overwrites } = run;
    const { vault } = reading;
    const wanted = run.environmentName ?? name;
    const environment = await db.transaction(async (tx) => {
      const ensured = await ensureEnvironment(tx, { name: wanted, vault });
      if (ensured.created) await writeCommandAudit(tx, { action: 'environment.created', target: wanted });
      return ensured.environment;
    });
    await run.take(environment.id);
    const source = sourceOf(file);
    const from = await openImport(db, { environmentId: environment.id, source, overwrites });
    return new EnvironmentRun(run, { environment: { db, vault, environment, now: run.now() }, from, file });
  }

  /** `bytes` is the size of the entry in the file. */
  async add(entry: Exclude<Entry, { kind: 'environment' | 'end' }>, bytes: number): Promise<void> {
    switch (entry.kind) {
      case 'settings':
        return this.#addStep(await importSettings(this.#environment, entry));
      case 'signing_keys':
        return this.#addStep(await importSigningKeys(this.#environment, entry));
      case 'variable':
        return this.#addStep(await importVariable(this.#environment, entry));
      case 'endpoint':
        return this.#addStep(await importEndpoint(this.#environment, entry));
      case 'api_key':
        return this.#addStep(await importApiKey(this.#environment, entry));
      case 'retention':
        if (entry.unique_key !== null && !this.#integrations.has(entry.unique_key)) return undefined;
        return this.#addStep(await importRetention(this.#environment, entry));
      case 'provider':
        return this.#importProvider(entry);
      case 'integration':
        return this.#importIntegration(entry);
      case 'connection':
        await this.#endDataset();
        this.#connection = (await this.#importConnection(entry)) ? refOf(entry) : undefined;
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
    const { environment } = this.#environment;
    await db.transaction(async (tx) => {
      await startNewSyncs(tx, { environmentId: environment.id, at: now() });
      await closeImport(tx, this.#from);
    });
    const report = this.#report;
    const failed = this.#failed;
    for (const [reason, why] of Object.entries(reasonsOfDatasets)) {
      const count = failed.filter((one) => one.reason === reason).length;
      if (count > 0 && !this.#hasRecords)
        report.next_steps.push(`The settings and consumers of ${count} datasets were not imported: ${why}.`);
    }
    if (this.#hasRecords) report.records = { ...(await countRecords(db, this.#from, undefined)), failed };
    const clients = [...this.#integrations.values()].filter(
      ({ provider, isTest }) => modeNamed(provider.auth_mode).authorization !== undefined && !isTest,
    );
    if (clients.length > 0)
      report.next_steps.push(
        `At the provider, add the redirect URI ${baseUrl}/oauth/callback to the OAuth clients of ` +
          `${clients.map(({ key }) => key).join(', ')}, if it is missing there.`,
      );
    return completeReport(db, { report, from: this.#from, filter: undefined, endedAt: now() });
  }

  #addStep(step: string | undefined): void {
    if (step !== undefined) this.#report.next_steps.push(step);
  }

  async #importProvider(entry: EntryOf<'provider'>): Promise<void> {
    const { read, step } = await importProvider(this.#environment, entry, this.#run.reading);
    this.#definitions.set(entry.name, read?.definition);
    this.#addStep(step);
  }

  async #importIntegration(entry: EntryOf<'integration'>): Promise<void> {
    const { db, reading } = this.#run;
    const at = { environmentId: this.#environment.environment.id, reading, definitions: this.#definitions };
    const { reported, integration } = await importIntegration(db, entry, at);
    this.#report.integrations.push(reported);
    if (integration !== undefined) this.#integrations.set(integration.key, integration);
  }

  /** Whether the connection is here, so its datasets may follow. */
  async #importConnection(entry: EntryOf<'connection'>): Promise<boolean> {
    const { db, overwrites, reading, now } = this.#run;
    const from = this.#from;
    const ref = refOf(entry);
    const environmentId = this.#environment.environment.id;
    const [known] = await findKnown(db, { environmentId, from, refs: [ref], overwrites });
    const { isHere } = known!;
    const decision = decide(known!, { overwrites });
    if (decision !== 'import') {
      if (decision !== known!.outcome) await saveOutcomes(db, from, [{ ...ref, outcome: decision }]);
      return isHere;
    }
    const integration = this.#integrations.get(ref.integration);
    if (integration === undefined) {
      await saveOutcomes(db, from, [{ ...ref, outcome: 'skipped', reason: this.#whySkipped(ref) }]);
      return isHere;
    }
    try {
      const settings = { reading, from, sourceName: 'file', overwrites, at: now() };
      await importConnection(db, importedFrom(entry, integration), settings);
      return true;
    } catch (error) {
      const failure = failureOf(error);
      if (failure === undefined) throw error;
      await saveOutcomes(db, from, [{ ...ref, outcome: 'failed', ...failure }]);
      return isHere;
    }
  }

  #whySkipped({ integration }: ConnectionRef): string {
    const skipped = this.#report.integrations.find(({ unique_key: key }) => key === integration);
    return skipped?.reason ?? 'unknown_integration';
  }

  async #openDataset(entry: EntryOf<'dataset'>): Promise<void> {
    if (this.#connection === undefined) return;
    const { db, brand, reading } = this.#run;
    const dataset = { ...this.#connection, model: entry.model, variant: entry.variant };
    const reader = new DatasetReader(dataset, this.#failed);
    this.#dataset = reader;
    await reader.attempt(async () => {
      if (!this.#integrations.has(dataset.integration)) throw integrationSkipped(this.#whySkipped(dataset));
      const at = { db, vault: reading.vault, from: this.#from, metadataKey: brand.metadataKey };
      const opened = await openDataset(at, dataset);
      if (opened.isNew)
        await setDatasetSettings(db, opened.target, {
          ignoreFields: entry.ignore_fields,
          keepPrevious: entry.keep_previous,
          massDeleteShare: entry.mass_delete_share,
          massDeleteNumber: entry.mass_delete_number,
        });
      reader.fill(opened);
    });
  }

  async #endDataset(): Promise<void> {
    await this.#dataset?.end();
    this.#dataset = undefined;
  }
}

const batchRecords = 500;
const batchBytes = 4 * 1024 * 1024;

/**
 * Saves the records of a dataset in batches. The ledger holds how many of them are saved, and the next run passes over
 * these. After a failure, or before `fill`, all records are passed over.
 */
class DatasetReader {
  readonly #ref: DatasetRef;
  readonly #failed: FailedDataset[];
  /** Undefined if nothing is to be added. */
  #dataset: ImportedDataset | undefined;
  /** The numbers of records in the file that are saved and that were read. */
  #saved = 0;
  #read = 0;
  #batch: EntryOf<'record'>[] = [];
  #bytes = 0;

  constructor(ref: DatasetRef, failed: FailedDataset[]) {
    this.#ref = ref;
    this.#failed = failed;
  }

  /** Ends the dataset with a failure of the report if `work` fails for a reason of its own. */
  async attempt(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      const failure = failureOf(error);
      if (failure === undefined) throw error;
      this.#failed.push({ ...this.#ref, ...failure });
      this.#dataset = undefined;
    }
  }

  fill(dataset: ImportedDataset): void {
    this.#saved = Number(dataset.progress.position ?? 0);
    if (!dataset.progress.isDone) this.#dataset = dataset;
  }

  /** `bytes` is about the size of the record. */
  async add(record: EntryOf<'record'>, bytes: number): Promise<void> {
    this.#read += 1;
    if (this.#read <= this.#saved || this.#dataset === undefined) return;
    this.#batch.push(record);
    this.#bytes += bytes;
    if (this.#batch.length >= batchRecords || this.#bytes >= batchBytes) await this.#flush();
  }

  /** A consumer that has read all records that were added so far. */
  async place(name: string): Promise<void> {
    await this.#flush();
    await this.#dataset?.place(name);
  }

  async end(): Promise<void> {
    await this.#flush();
    await this.#dataset?.end();
  }

  async #flush(): Promise<void> {
    const dataset = this.#dataset;
    if (this.#batch.length === 0 || dataset === undefined) return;
    const batch = this.#batch;
    this.#batch = [];
    this.#bytes = 0;
    await this.attempt(async () => {
      const records = batch.flatMap(importedRecord);
      const position = String(this.#saved + batch.length);
      await dataset.add(records, { position, pruned: batch.length - records.length });
      this.#saved += batch.length;
    });
  }
}

/** None if the payload was pruned; a deletion is imported without one. */
function importedRecord({ id, is_deleted: isDeleted, fields }: EntryOf<'record'>): ImportedRecord[] {
  return fields === null && !isDeleted ? [] : [{ id, isDeleted, fields: fields ?? {} }];
}

function refOf(entry: EntryOf<'connection'>): ConnectionRef {
  return { integration: entry.unique_key, connection: entry.connection_id };
}

function importedFrom(entry: EntryOf<'connection'>, integration: Integration): ImportedConnection {
  const { account } = entry;
  return {
    ...importedSettings.parse(entry),
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
