/**
 * Instruments of the metrics: cheap enough for every call of the proxy, since code that counts often keeps the cell it
 * counts in, and looks nothing up then.
 *
 * Does not own: the list of metrics (`metrics.ts`), their text format (`text.ts`).
 */

/** A figure at the moment it is read, by the values of its labels. */
export type Sample<L extends readonly string[] = readonly string[]> = {
  readonly labels: ValuesOf<L>;
  readonly value: number;
};

type ValuesOf<L extends readonly string[]> = { readonly [K in keyof L]: string };

type Description<L extends readonly string[] = readonly string[]> = {
  readonly name: string;
  readonly help: string;
  readonly labels: L;
};

/** Counts; also down again where it is a gauge. */
export class Cell {
  value = 0;

  add(by = 1): void {
    this.value += by;
  }
}

/** Times, or sizes, by how many are at most so large. */
export class Distribution {
  readonly bounds: readonly number[];
  /** As many as bounds, and one for what is beyond. */
  readonly counts: Float64Array;
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = new Float64Array(bounds.length + 1);
  }

  observe(value: number): void {
    const { bounds, counts } = this;
    let at = 0;
    while (at < bounds.length && value > (bounds[at] as number)) at += 1;
    counts[at] = (counts[at] as number) + 1;
    this.sum += value;
  }
}

/** Beyond so many combinations of one figure's labels each new one counts as `other`: a slip fills no memory, here or elsewhere. */
const maxCombinations = 2_000;

/** One cell for each combination of values, made when it is first asked for. */
class Cells<L extends readonly string[], C> {
  readonly #make: () => C;
  readonly #known = new Map<string, { labels: ValuesOf<L>; cell: C }>();

  constructor(make: () => C) {
    this.#make = make;
  }

  of(labels: ValuesOf<L>): C {
    const key = labels.length === 1 ? (labels[0] as string) : labels.join('\0');
    const known = this.#known.get(key);
    if (known !== undefined) return known.cell;
    const others = labels.map(() => 'other') as unknown as ValuesOf<L>;
    if (this.#known.size >= maxCombinations && key !== others.join('\0')) return this.of(others);
    const cell = this.#make();
    this.#known.set(key, { labels: [...labels] as unknown as ValuesOf<L>, cell });
    return cell;
  }

  all(): Iterable<{ labels: ValuesOf<L>; cell: C }> {
    return this.#known.values();
  }
}

export class Counter<const L extends readonly string[] = readonly string[]> implements Description<L> {
  readonly type = 'counter';
  readonly name: string;
  readonly help: string;
  readonly labels: L;
  readonly #cells = new Cells<L, Cell>(() => new Cell());

  constructor({ name, help, labels }: Description<L>) {
    this.name = name;
    this.help = help;
    this.labels = labels;
    // Without labels there is one figure, and it is told from the beginning.
    if (labels.length === 0) this.of([] as unknown as ValuesOf<L>);
  }

  /** For who counts often: the cell stays the same. */
  of(labels: ValuesOf<L>): Cell {
    return this.#cells.of(labels);
  }

  add(labels: ValuesOf<L>, by = 1): void {
    this.#cells.of(labels).value += by;
  }

  samples(): Sample<L>[] {
    return Array.from(this.#cells.all(), ({ labels, cell }) => ({ labels, value: cell.value }));
  }
}

export class Histogram<const L extends readonly string[] = readonly string[]> implements Description<L> {
  readonly type = 'histogram';
  readonly name: string;
  readonly help: string;
  readonly labels: L;
  readonly #cells: Cells<L, Distribution>;

  constructor({ name, help, labels, bounds }: Description<L> & { bounds: readonly number[] }) {
    this.name = name;
    this.help = help;
    this.labels = labels;
    this.#cells = new Cells(() => new Distribution(bounds));
    if (labels.length === 0) this.of([] as unknown as ValuesOf<L>);
  }

  of(labels: ValuesOf<L>): Distribution {
    return this.#cells.of(labels);
  }

  observe(labels: ValuesOf<L>, value: number): void {
    this.#cells.of(labels).observe(value);
  }

  distributions(): Iterable<{ labels: ValuesOf<L>; cell: Distribution }> {
    return this.#cells.all();
  }
}

/** A metric that is read on request, by the module that holds it: see `Reading`. */
export class Gauge<const L extends readonly string[] = readonly string[]> implements Description<L> {
  readonly type = 'gauge';
  readonly name: string;
  readonly help: string;
  readonly labels: L;

  constructor({ name, help, labels }: Description<L>) {
    this.name = name;
    this.help = help;
    this.labels = labels;
  }

  /** As it is read now. */
  reads(...samples: [labels: ValuesOf<L>, value: number][]): Reading {
    return { gauge: this, samples: samples.map(([labels, value]) => ({ labels, value })) };
  }
}

/** What a gauge says at the moment; of one that cannot be read there is none. */
export type Reading = { readonly gauge: Gauge; readonly samples: readonly Sample[] };
export type Instrument = Counter | Histogram | Gauge;
