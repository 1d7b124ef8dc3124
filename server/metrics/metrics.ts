/**
 * The service's metrics at `/metrics`. Modules count in them; docs/operations/monitoring.md lists them, and a test
 * compares.
 *
 * Labels have few values: names of providers, routes, codes and states that are written in this repository. Never a
 * value that a caller or a customer chose, such as an ID, a host or a path. None is called `job` or `instance`: a
 * scraper adds these labels, and renames ours.
 */

/** The present value of a metric for these values of its labels. */
type Sample<L extends readonly string[] = readonly string[]> = {
  readonly labels: ValuesOf<L>;
  readonly value: number;
};

type ValuesOf<L extends readonly string[]> = { readonly [K in keyof L]: string };

type Description<L extends readonly string[] = readonly string[]> = {
  readonly name: string;
  readonly help: string;
  readonly labels: L;
};

/** A count; a gauge also decreases. */
class Cell {
  value = 0;

  add(by = 1): void {
    this.value += by;
  }
}

/** The number of values up to each bound. */
class Distribution {
  readonly bounds: readonly number[];
  /** One for each bound, and one for larger values. */
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

/** Further combinations of a metric's labels count as `other`, so that a mistake does not fill the memory. */
const maxCombinations = 2_000;

/** One cell for each combination of label values, created on first use. */
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
    // Without labels there is one value, reported from the start.
    if (labels.length === 0) this.of([] as unknown as ValuesOf<L>);
  }

  /** The cell stays the same, so code that counts often keeps it and skips the look-up. */
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

/** A metric that is read on request, by the module that holds its value; see `Reading`. */
class Gauge<const L extends readonly string[] = readonly string[]> implements Description<L> {
  readonly type = 'gauge';
  readonly name: string;
  readonly help: string;
  readonly labels: L;

  constructor({ name, help, labels }: Description<L>) {
    this.name = name;
    this.help = help;
    this.labels = labels;
  }

  reads(...samples: [labels: ValuesOf<L>, value: number][]): Reading {
    return { gauge: this, samples: samples.map(([labels, value]) => ({ labels, value })) };
  }
}

/** The present values of a gauge; absent if it cannot be read. */
export type Reading = { readonly gauge: Gauge; readonly samples: readonly Sample[] };
export type Instrument = Counter | Histogram | Gauge;

/** In seconds, for work of milliseconds to seconds, such as a request. */
const ofRequests = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30] as const;
/** In seconds, for work of up to hours, such as a run. */
const ofWork = [0.05, 0.25, 1, 5, 15, 60, 300, 900, 3_600, 14_400] as const;
/** In seconds, for waits that are usually short, such as for a connection of the pool. */
const ofWaits = [0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 10] as const;

export const metrics = {
  httpDuration: new Histogram({
    name: 'trellis_http_request_duration_seconds',
    help: 'Time from a request of the interface to the end of its response, without calls of the proxy.',
    labels: ['method', 'route', 'status'],
    bounds: ofRequests,
  }),
  httpRefused: new Counter({
    name: 'trellis_http_requests_refused_total',
    help: 'Requests that were refused before any work, by error code.',
    labels: ['reason'],
  }),

  proxyCalls: new Counter({
    name: 'trellis_proxy_calls_total',
    help: 'Finished calls of the proxy.',
    labels: ['provider', 'status', 'outcome'],
  }),
  proxyErrors: new Counter({
    name: 'trellis_proxy_errors_total',
    help: 'Calls of the proxy that got an error of the service, by its code.',
    labels: ['provider', 'code'],
  }),
  proxyDuration: new Histogram({
    name: 'trellis_proxy_call_duration_seconds',
    help: 'Time from a call of the proxy to the end of its response.',
    labels: ['provider'],
    bounds: ofRequests,
  }),
  proxyFirstByte: new Histogram({
    name: 'trellis_proxy_first_byte_seconds',
    help: "Time from sending a request on its connection to the head of the provider's response.",
    labels: ['provider'],
    bounds: ofRequests,
  }),
  proxyUpstream: new Counter({
    name: 'trellis_proxy_upstream_requests_total',
    help: 'Requests that calls of the proxy sent to providers; a retried call sends several.',
    labels: ['provider'],
  }),
  proxyRetries: new Counter({
    name: 'trellis_proxy_retries_total',
    help: 'Retries of calls of the proxy.',
    labels: ['provider'],
  }),
  proxyQuotaWait: new Histogram({
    name: 'trellis_proxy_quota_wait_seconds',
    help: "Time that calls of the proxy waited for the provider's quota, without calls that did not wait.",
    labels: ['provider'],
    bounds: ofRequests,
  }),
  proxyRequestBytes: new Counter({
    name: 'trellis_proxy_request_bytes_total',
    help: 'Bytes of bodies that calls of the proxy sent to providers.',
    labels: ['provider'],
  }),
  proxyAnswerBytes: new Counter({
    name: 'trellis_proxy_response_bytes_total',
    help: 'Bytes of bodies that came from providers for calls of the proxy.',
    labels: ['provider'],
  }),
  proxyInFlight: new Gauge({
    name: 'trellis_proxy_calls_in_flight',
    help: 'Calls of the proxy in progress on this node.',
    labels: [],
  }),

  refreshes: new Counter({
    name: 'trellis_refreshes_total',
    help: 'Attempts to renew credentials: renewed, superseded by another node, or the error code.',
    labels: ['provider', 'outcome'],
  }),
  refreshDuration: new Histogram({
    name: 'trellis_refresh_duration_seconds',
    help: 'Time that an attempt to renew credentials took.',
    labels: ['provider'],
    bounds: ofRequests,
  }),
  refreshLeaseWait: new Histogram({
    name: 'trellis_refresh_lease_wait_seconds',
    help: 'Time that this node waited for a refresh of another node.',
    labels: ['provider'],
    bounds: ofRequests,
  }),

  records: new Counter({
    name: 'trellis_records_total',
    help: 'Records by operation.',
    labels: ['operation'],
  }),

  runs: new Counter({
    name: 'trellis_runs_total',
    help: 'Attempts of runs of functions that ended on this node; `released`: another node continues.',
    labels: ['kind', 'outcome'],
  }),
  runDuration: new Histogram({
    name: 'trellis_run_duration_seconds',
    help: 'Time that an attempt of a run took on this node.',
    labels: ['kind'],
    bounds: ofWork,
  }),
  runDelay: new Histogram({
    name: 'trellis_run_delay_seconds',
    help: 'Time from the due time of a run to its start on a node.',
    labels: ['kind'],
    bounds: ofWork,
  }),
  runsRunning: new Gauge({
    name: 'trellis_runs_under_way',
    help: 'Runs of functions in progress on this node.',
    labels: [],
  }),
  functionProcesses: new Gauge({
    name: 'trellis_function_processes',
    help: 'Processes of customer code on this node; waiting: runs that wait for one.',
    labels: ['state'],
  }),

  deliveries: new Counter({
    name: 'trellis_delivery_attempts_total',
    help: 'Attempts to deliver an event: delivered, or the cause of the failure.',
    labels: ['outcome'],
  }),
  deliveryDuration: new Histogram({
    name: 'trellis_delivery_duration_seconds',
    help: 'Time that a receiver took to respond.',
    labels: ['outcome'],
    bounds: ofRequests,
  }),

  jobs: new Counter({
    name: 'trellis_jobs_total',
    help: 'Background jobs that ran on this node.',
    labels: ['task', 'outcome'],
  }),
  jobDuration: new Histogram({
    name: 'trellis_job_duration_seconds',
    help: 'Time that a background job took.',
    labels: ['task'],
    bounds: ofWork,
  }),

  signInsRefused: new Counter({
    name: 'trellis_sign_ins_refused_total',
    help: 'Attempts to sign in to the dashboard that were refused.',
    labels: [],
  }),

  dbConnections: new Gauge({
    name: 'trellis_db_pool_connections',
    help: "Connections of this node's pool: in use, or idle.",
    labels: ['state'],
  }),
  dbWaiting: new Gauge({
    name: 'trellis_db_pool_waiting',
    help: 'Statements and transactions that wait for a connection of the pool.',
    labels: [],
  }),
  dbConnectionWait: new Histogram({
    name: 'trellis_db_connection_wait_seconds',
    help: 'Time that statements and transactions waited for a connection of the pool.',
    labels: [],
    bounds: ofWaits,
  }),

  databaseUp: new Gauge({
    name: 'trellis_database_up',
    help: '1 if the last read of the metrics below from the database succeeded, at most ten seconds ago.',
    labels: [],
  }),
  runsWaiting: new Gauge({
    name: 'trellis_runs_waiting',
    help: 'Waiting runs of the installation: due ones, and later ones. At most 100,000 are counted.',
    labels: ['state'],
  }),
  runsOldestDue: new Gauge({
    name: 'trellis_runs_oldest_due_seconds',
    help: 'Time since the longest waiting run became due.',
    labels: [],
  }),
  deliveriesOldest: new Gauge({
    name: 'trellis_deliveries_oldest_waiting_seconds',
    help: 'Waiting time of the oldest delivery to an endpoint that is neither disabled nor paused.',
    labels: [],
  }),
  eventsUnplaced: new Gauge({
    name: 'trellis_events_without_position',
    help: 'Events that have no position in the feed yet. At most 100,000 are counted.',
    labels: [],
  }),
  auditUnplaced: new Gauge({
    name: 'trellis_audit_entries_without_position',
    help: 'Entries of the audit log that are not chained yet. At most 100,000 are counted.',
    labels: [],
  }),
  connections: new Gauge({
    name: 'trellis_connections',
    help: 'Connections of the installation by status, counted every five minutes.',
    labels: ['status'],
  }),
  connectionStates: new Gauge({
    name: 'trellis_connection_states',
    help: 'Connections of the installation by the state in their health, counted every five minutes. `other`: active and not healthy, beyond 10,000 such connections.',
    labels: ['state'],
  }),
  integrationsRefused: new Gauge({
    name: 'trellis_integrations_refused',
    help: 'Integrations with connections whose OAuth client the provider refuses, until it takes the client again.',
    labels: ['provider'],
  }),

  buildInfo: new Gauge({
    name: 'trellis_build_info',
    help: 'The versions of the service and of Node: always 1.',
    labels: ['version', 'node'],
  }),
} as const;

/** The cells of one provider's calls, looked up once: every call of the proxy counts in all of them. */
class ProviderCells {
  readonly provider: string;
  readonly duration;
  readonly firstByte;
  readonly upstream;
  readonly requestBytes;
  readonly answerBytes;
  /** The outcome of nearly all calls. */
  readonly answered;

  constructor(provider: string) {
    this.provider = provider;
    this.duration = metrics.proxyDuration.of([provider]);
    this.firstByte = metrics.proxyFirstByte.of([provider]);
    this.upstream = metrics.proxyUpstream.of([provider]);
    this.requestBytes = metrics.proxyRequestBytes.of([provider]);
    this.answerBytes = metrics.proxyAnswerBytes.of([provider]);
    this.answered = metrics.proxyCalls.of([provider, '2xx', 'answered']);
  }
}

/** The number of calls of the proxy in flight on this node. */
export const callsInFlight = new Cell();

const cells = new Map<string, ProviderCells>();

/** `provider` is a name of the catalogue; undefined: the call was refused before its provider was found. */
export function cellsOf(provider: string | undefined): ProviderCells {
  const name = provider ?? 'other';
  let found = cells.get(name);
  if (found === undefined) {
    found = new ProviderCells(name);
    cells.set(name, found);
  }
  return found;
}

/** Counts records after they were written, read or removed. */
export function countRecords(counts: Partial<Record<RecordOperation, number>>): void {
  for (const [operation, count] of Object.entries(counts)) {
    if (count > 0) metrics.records.add([operation], count);
  }
}

/** `restored`: pruned records that have their payload again. `removed`: tombstones. */
type RecordOperation =
  | 'added'
  | 'updated'
  | 'unchanged'
  | 'restored'
  | 'deleted'
  | 'pruned'
  | 'removed'
  | 'listed';

/** Such as `2xx`. */
export function statusClass(status: number | undefined): string {
  return status === undefined ? 'none' : `${Math.floor(status / 100)}xx`;
}

export type MetricsText = { contentType: string; text: string };

type Value = { labels: Record<string, string>; value: number; metricName: string };

/** A metric with all its values, in the form of prom-client. */
type Family = { name: string; help: string; type: string; values: Value[] };

export type ReadProcessMetrics = () => Promise<Family[]>;

/** `process` tells the processes of one machine apart; absent if there is one. */
export type ProcessMetrics = { process?: string; families: Family[] };

/**
 * Reads the present values of `instruments`, and the metrics of this process and of Node. `read` returns the values of the gauges.
 * prom-client is loaded at the first call, since it measures the event loop and garbage collection from then on.
 */
export function createProcessMetrics(
  read: () => readonly Reading[],
  instruments: readonly Instrument[] = Object.values<Instrument>(metrics),
): ReadProcessMetrics {
  let loading: ReturnType<typeof load> | undefined;

  async function load() {
    const { Registry, collectDefaultMetrics } = await import('prom-client');
    const registry = new Registry();
    collectDefaultMetrics({ register: registry });
    return registry;
  }

  return async () => {
    loading ??= load();
    const registry = await loading;
    const readings = new Map(read().map(({ gauge, samples }) => [gauge as Instrument, samples]));
    const own = instruments.map((instrument) => {
      const { name, help, type } = instrument;
      return { name, help, type, values: valuesOf(instrument, readings.get(instrument) ?? []) };
    });
    return [...own, ...((await registry.getMetricsAsJSON()) as unknown as Family[])];
  };
}

/**
 * Writes metrics in the text format of Prometheus. The values of several processes stand side by side, each with the label
 * `process`: a sum would fall when a process is replaced, and Prometheus would count the rest of it again. Those of the
 * installation stand there once.
 */
export async function writeMetrics(
  processes: readonly ProcessMetrics[],
  installation: readonly Reading[],
): Promise<MetricsText> {
  const { Registry } = await import('prom-client');
  const merged = new Map<string, Family>();
  for (const { process, families } of processes) {
    for (const { values, ...family } of families) {
      const known = merged.get(family.name) ?? { ...family, values: [] };
      merged.set(family.name, known);
      for (const { labels, value, ...rest } of values)
        known.values.push({
          ...rest,
          // JSON between processes has no NaN.
          value: value ?? Number.NaN,
          labels: process === undefined ? labels : { process, ...labels },
        });
    }
  }
  for (const { gauge, samples } of installation)
    merged.get(gauge.name)?.values.push(...valuesOf(gauge, samples));
  const registry = new Registry();
  for (const family of merged.values())
    registry.registerMetric({ name: family.name, get: async () => family } as never);
  return { contentType: registry.contentType, text: await registry.metrics() };
}

function valuesOf(instrument: Instrument, read: readonly Sample[]): Value[] {
  const named = (values: readonly string[]) =>
    Object.fromEntries(instrument.labels.map((label, at) => [label, values[at] ?? '']));
  if (instrument.type === 'histogram') {
    return Array.from(instrument.distributions(), ({ labels, cell }) =>
      linesOf(instrument.name, named(labels), cell),
    ).flat();
  }
  const samples: readonly Sample[] = instrument.type === 'gauge' ? read : instrument.samples();
  return samples.map(({ labels, value }) => ({ labels: named(labels), value, metricName: instrument.name }));
}

/** The count of each bound includes those of the lower bounds. */
function linesOf(
  name: string,
  labels: Record<string, string>,
  { bounds, counts, sum }: Distribution,
): Value[] {
  let total = 0;
  const buckets = [...bounds.map(String), '+Inf'].map((le, at) => {
    total += counts[at] as number;
    return { labels: { ...labels, le }, value: total, metricName: `${name}_bucket` };
  });
  return [
    ...buckets,
    { labels, value: sum, metricName: `${name}_sum` },
    { labels, value: total, metricName: `${name}_count` },
  ];
}
