import type { Tx } from '../db/pool.ts';
import type { Operation } from './operations.ts';

/** The spans that counts are kept by, in seconds: a minute, an hour, a day (UTC). */
export const spansS = [60, 3600, 86_400] as const;
export type SpanS = (typeof spansS)[number];

type CellKey = {
  readonly environmentId: number;
  readonly spanS: SpanS;
  /** When the span begins. */
  readonly epochMs: number;
  readonly type: string;
  readonly status: string;
  readonly integration: string;
  readonly target: string;
  readonly variant: string;
};
type Cell = CellKey & { count: number; readonly histogram: number[] };

/** Endpoints and functions with their variants that a node counts by name, for each environment and day. */
const maxNames = 1_000;
/** Integrations of which a node remembers that they exist. */
const maxRemembered = 10_000;

/**
 * The names that counts of one node may have. Callers choose variants and send any name of an integration, so both are
 * bounded: a name of an integration counts if the integration exists, and others have `maxNames` a day.
 */
export class CountNames {
  #day = 0;
  readonly #targets = new Map<number, Set<string>>();
  readonly #integrations = new Set<string>();

  /** The operation's target and variant; two empty texts if it has none, or if the day has `maxNames` names already. */
  targetOf(operation: Operation, epochMs: number): { target: string; variant: string } {
    const named = targetOf(operation);
    if (named.target === '') return named;
    const day = Math.floor(epochMs / 86_400_000);
    if (day > this.#day) {
      this.#day = day;
      this.#targets.clear();
    }
    const { environmentId } = operation;
    let names = this.#targets.get(environmentId);
    if (names === undefined) {
      names = new Set();
      this.#targets.set(environmentId, names);
    }
    const name = `${operation.type}\0${named.target}\0${named.variant}`;
    if (!names.has(name) && names.size >= maxNames) return noTarget;
    names.add(name);
    return named;
  }

  isKnown(environmentId: number, integration: string): boolean {
    return this.#integrations.has(`${environmentId}\0${integration}`);
  }

  /** Remembers those of the integrations that exist. */
  async lookUp(tx: Tx, integrations: { environmentId: number; integration: string }[]): Promise<void> {
    const unknown = integrations.filter((one) => !this.isKnown(one.environmentId, one.integration));
    if (unknown.length === 0) return;
    const found = await tx.query<{ environmentId: number; key: string }>(
      `select integration.environment_id as "environmentId", integration.key
       from unnest($1::bigint[], $2::text[]) as named (environment_id, key)
       join integration using (environment_id, key)`,
      [unknown.map((one) => one.environmentId), unknown.map((one) => one.integration)],
    );
    if (this.#integrations.size + found.length > maxRemembered) this.#integrations.clear();
    for (const { environmentId, key } of found) this.#integrations.add(`${environmentId}\0${key}`);
  }
}

const noTarget = { target: '', variant: '' };

/** What a delivery or a run is counted by, besides its integration. */
function targetOf({ type, details }: Operation): { target: string; variant: string } {
  if (type === 'delivery') return { target: storable(details?.endpoint), variant: '' };
  if (type !== 'run') return noTarget;
  const target = `${storable(details?.kind)}/${storable(details?.function)}`;
  return { target, variant: storable(details?.variant) };
}

/** PostgreSQL keeps no NUL in a text. */
function storable(value: unknown): string {
  const text = String(value ?? '');
  return text.includes('\0') ? text.replaceAll('\0', '') : text;
}

/** Counts of the operations of one batch. */
export class Tally {
  readonly #names: CountNames;
  readonly #cells = new Map<string, Cell>();

  constructor(names: CountNames) {
    this.#names = names;
  }

  add(operation: Operation, epochMs: number): void {
    const { environmentId, type, status, durationMs } = operation;
    const { target, variant } = this.#names.targetOf(operation, epochMs);
    const integration = operation.integration === undefined ? '' : storable(operation.integration);
    const of = {
      environmentId,
      spanS: spansS[0],
      epochMs: epochMs - (epochMs % 60_000),
      type,
      status,
      integration,
      target,
      variant,
    };
    const cell = cellOf(this.#cells, of);
    cell.count += 1;
    if (durationMs !== undefined) cell.histogram[bucketOf(durationMs)]! += 1;
  }

  clear(): void {
    this.#cells.clear();
  }

  /** Adds to the counts of each span. To be the last statement of its transaction: other nodes wait for these rows. */
  async write(tx: Tx): Promise<void> {
    const minutes = [...this.#cells.values()];
    await this.#names.lookUp(
      tx,
      minutes.filter(({ integration }) => integration !== ''),
    );
    const cells = new Map<string, Cell>();
    for (const minute of minutes) {
      const { environmentId, epochMs } = minute;
      const isKnown = this.#names.isKnown(environmentId, minute.integration);
      for (const spanS of spansS) {
        const integration = isKnown ? minute.integration : '';
        const of = { ...minute, spanS, integration, epochMs: epochMs - (epochMs % (spanS * 1000)) };
        const cell = cellOf(cells, of);
        cell.count += minute.count;
        for (const [bucket, count] of minute.histogram.entries()) cell.histogram[bucket]! += count;
      }
    }
    const rows = [...cells.values()];
    // In the order of the key, so that batches of several nodes never wait for each other in a circle.
    await tx.query(
      `insert into operation_count as kept (
         environment_id, span_s, begins_at, type, status, integration, target, variant, count, histogram
       )
       select
         environment_id, span_s, to_timestamp(begins_s), type, status, integration, target, variant, count,
         histogram::integer[]
       from unnest(
         $1::bigint[], $2::integer[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
         $9::bigint[], $10::text[]
       ) as added (
         environment_id, span_s, begins_s, type, status, integration, target, variant, count, histogram
       )
       order by 1, 2, 3, 4, 5, 6, 7, 8
       on conflict (environment_id, span_s, begins_at, type, status, integration, target, variant)
       do update set
         count = kept.count + excluded.count,
         histogram = array(
           select coalesce(before, 0) + coalesce(more, 0)
           from unnest(kept.histogram, excluded.histogram) with ordinality as bucket (before, more, number)
           order by number
         )`,
      [
        rows.map((row) => row.environmentId),
        rows.map((row) => row.spanS),
        rows.map((row) => row.epochMs / 1000),
        rows.map((row) => row.type),
        rows.map((row) => row.status),
        rows.map((row) => row.integration),
        rows.map((row) => row.target),
        rows.map((row) => row.variant),
        rows.map((row) => row.count),
        rows.map((row) => `{${trimmed(row.histogram).join(',')}}`),
      ],
    );
  }
}

/** The cell of this key; a new one is empty. */
function cellOf(cells: Map<string, Cell>, of: CellKey): Cell {
  const { environmentId, spanS, epochMs, type, status, integration, target, variant } = of;
  const key = `${environmentId}\0${spanS}\0${epochMs}\0${type}\0${status}\0${integration}\0${target}\0${variant}`;
  let cell = cells.get(key);
  if (cell === undefined) {
    cell = { ...of, count: 0, histogram: new Array<number>(bucketCount).fill(0) };
    cells.set(key, cell);
  }
  return cell;
}

function trimmed(histogram: readonly number[]): readonly number[] {
  return histogram.slice(0, histogram.findLastIndex((count) => count > 0) + 1);
}

/**
 * Histograms of durations with fixed buckets: bucket 0 counts durations below 1 ms, bucket n those from `growth ** (n - 1)`
 * to `growth ** n` ms, and the last one all longer ones (from about 11 minutes).
 */
const growth = 1.25;
export const bucketCount = 62;
const lastBucket = bucketCount - 1;
const scale = 1 / Math.log(growth);

export function bucketOf(durationMs: number): number {
  if (!(durationMs >= 1)) return 0;
  return Math.min(Math.floor(Math.log(durationMs) * scale) + 1, lastBucket);
}

/** The duration below which this share (0 to 1) lies, by nearest rank, in ms; null if there is none. */
export function quantileOf(histogram: readonly number[], part: number): number | null {
  const total = histogram.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  const rank = Math.max(1, Math.ceil(part * total));
  let passed = 0;
  const bucket = histogram.findIndex((count) => {
    passed += count;
    return passed >= rank;
  });
  if (bucket === 0) return 0.5;
  // The geometric middle of a bucket is as far from both its ends, in proportion.
  const middle = bucket === lastBucket ? growth ** (bucket - 1) : growth ** (bucket - 0.5);
  return Math.round(middle * 100) / 100;
}
