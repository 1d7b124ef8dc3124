/**
 * The service's metrics at `/metrics`. Modules count in them; docs/operations/monitoring.md lists them, and a test
 * compares.
 *
 * Labels have few values: names of providers, routes, codes and states that are written in this repository. Never a
 * value that a caller or a customer chose, such as an ID, a host or a path. None is called `job` or `instance`: a
 * scraper adds these labels, and renames ours.
 */
import { Cell, Counter, Gauge, Histogram } from './instruments.ts';

/** In seconds: what takes milliseconds to seconds, such as a request. */
const ofRequests = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30] as const;
/** In seconds: what takes up to hours, such as a run. */
const ofWork = [0.05, 0.25, 1, 5, 15, 60, 300, 900, 3_600, 14_400] as const;
/** In seconds: what should take next to nothing, such as a connection of the pool. */
const ofWaits = [0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 10] as const;

export const metrics = {
  httpDuration: new Histogram({
    name: 'trellis_http_request_duration_seconds',
    help: 'Time from a request of the interface to the end of its answer. Calls of the proxy are not among them.',
    labels: ['method', 'route', 'status'],
    bounds: ofRequests,
  }),
  httpRefused: new Counter({
    name: 'trellis_http_requests_refused_total',
    help: 'Requests that were refused before any work was done, by the error code of the refusal.',
    labels: ['reason'],
  }),

  proxyCalls: new Counter({
    name: 'trellis_proxy_calls_total',
    help: 'Calls of the proxy that are over.',
    labels: ['provider', 'status', 'outcome'],
  }),
  proxyErrors: new Counter({
    name: 'trellis_proxy_errors_total',
    help: 'Calls of the proxy that were answered with an error of the service, by its code.',
    labels: ['provider', 'code'],
  }),
  proxyDuration: new Histogram({
    name: 'trellis_proxy_call_duration_seconds',
    help: 'Time from a call of the proxy to the end of its answer.',
    labels: ['provider'],
    bounds: ofRequests,
  }),
  proxyFirstByte: new Histogram({
    name: 'trellis_proxy_first_byte_seconds',
    help: "Time from when a request goes out on its connection to the head of the provider's answer.",
    labels: ['provider'],
    bounds: ofRequests,
  }),
  proxyUpstream: new Counter({
    name: 'trellis_proxy_upstream_requests_total',
    help: 'Requests that calls of the proxy sent to providers; a call that is tried again sends several.',
    labels: ['provider'],
  }),
  proxyRetries: new Counter({
    name: 'trellis_proxy_retries_total',
    help: 'Times that a call of the proxy was tried once more.',
    labels: ['provider'],
  }),
  proxyQuotaWait: new Histogram({
    name: 'trellis_proxy_quota_wait_seconds',
    help: "Time that calls of the proxy waited for the provider's quota, of those that had to.",
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
    help: 'Calls of the proxy that are under way on this node.',
    labels: [],
  }),

  refreshes: new Counter({
    name: 'trellis_refreshes_total',
    help: 'Attempts to renew credentials: renewed, superseded by another node, or the code of what they failed with.',
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
    help: 'Time that this node waited for a refresh that another one had begun.',
    labels: ['provider'],
    bounds: ofRequests,
  }),

  records: new Counter({
    name: 'trellis_records_total',
    help: 'Records by what was done with them.',
    labels: ['operation'],
  }),

  runs: new Counter({
    name: 'trellis_runs_total',
    help: 'Turns of runs of functions that this node ended; released ones go on elsewhere.',
    labels: ['kind', 'outcome'],
  }),
  runDuration: new Histogram({
    name: 'trellis_run_duration_seconds',
    help: 'Time that a turn of a run took on this node.',
    labels: ['kind'],
    bounds: ofWork,
  }),
  runDelay: new Histogram({
    name: 'trellis_run_delay_seconds',
    help: 'Time from when a run was due to when a node began it.',
    labels: ['kind'],
    bounds: ofWork,
  }),
  runsRunning: new Gauge({
    name: 'trellis_runs_under_way',
    help: 'Runs of functions that are under way on this node.',
    labels: [],
  }),
  functionProcesses: new Gauge({
    name: 'trellis_function_processes',
    help: 'Processes of customer code on this node; waiting: runs that wait for one.',
    labels: ['state'],
  }),

  deliveries: new Counter({
    name: 'trellis_delivery_attempts_total',
    help: 'Attempts to deliver an event: delivered, or why it was not.',
    labels: ['outcome'],
  }),
  deliveryDuration: new Histogram({
    name: 'trellis_delivery_duration_seconds',
    help: 'Time that a receiver took to answer.',
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
    help: 'Time that was waited for a connection of the pool.',
    labels: [],
    bounds: ofWaits,
  }),

  databaseUp: new Gauge({
    name: 'trellis_database_up',
    help: '1 where the database answered when it was last asked for the figures below, in the last ten seconds.',
    labels: [],
  }),
  runsWaiting: new Gauge({
    name: 'trellis_runs_waiting',
    help: 'Runs of the installation that wait: due ones, and those whose time is yet to come. At most 100,000 are counted.',
    labels: ['state'],
  }),
  runsOldestDue: new Gauge({
    name: 'trellis_runs_oldest_due_seconds',
    help: 'For how long the run that waits longest has been due.',
    labels: [],
  }),
  deliveriesOldest: new Gauge({
    name: 'trellis_deliveries_oldest_waiting_seconds',
    help: 'For how long the oldest delivery waits to an endpoint that is neither disabled nor paused.',
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
  integrationsRefused: new Gauge({
    name: 'trellis_integrations_refused',
    help: 'Integrations with connections whose OAuth client the provider refuses, until it takes the client again.',
    labels: ['provider'],
  }),

  buildInfo: new Gauge({
    name: 'trellis_build_info',
    help: 'Which version runs, on which Node: always 1.',
    labels: ['version', 'node'],
  }),
} as const;

/** What of the calls of one provider is counted: looked up once, since every call of the proxy counts in all of it. */
class ProviderCells {
  readonly provider: string;
  readonly duration;
  readonly firstByte;
  readonly upstream;
  readonly requestBytes;
  readonly answerBytes;
  /** The end that nearly all calls come to. */
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

/** Calls of the proxy that are under way here. */
export const callsInFlight = new Cell();

const cells = new Map<string, ProviderCells>();

/** `provider` is a name of the catalogue; undefined where a call got no further than to be refused. */
export function cellsOf(provider: string | undefined): ProviderCells {
  const name = provider ?? 'other';
  let found = cells.get(name);
  if (found === undefined) {
    found = new ProviderCells(name);
    cells.set(name, found);
  }
  return found;
}

/** Counts records that were written, read or removed, once that is done. */
export function countRecords(counts: Partial<Record<RecordOperation, number>>): void {
  for (const [operation, count] of Object.entries(counts)) {
    if (count > 0) metrics.records.add([operation], count);
  }
}

/** `restored`: pruned ones that have their payload again. `removed`: tombstones. */
type RecordOperation =
  | 'added'
  | 'updated'
  | 'unchanged'
  | 'restored'
  | 'deleted'
  | 'pruned'
  | 'removed'
  | 'listed';

/** `2xx` and so on. */
export function statusClass(status: number | undefined): string {
  return status === undefined ? 'none' : `${Math.floor(status / 100)}xx`;
}
