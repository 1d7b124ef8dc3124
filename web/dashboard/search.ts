import { type FormSearch, formSearchOf } from './playground/form-search.ts';

/**
 * What may stand in the search of each page's address. What anybody writes there is read as if it were not there, unless
 * it is what the page understands.
 */
type Search = Record<string, unknown>;

const textOf = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : typeof value === 'number' ? String(value) : undefined;

const timeOf = (value: unknown): string | undefined =>
  typeof value === 'string' && !Number.isNaN(Date.parse(value)) ? new Date(value).toISOString() : undefined;

/** Only an address of the dashboard itself. */
const pathOf = (value: unknown): string | undefined => {
  const path = textOf(value);
  return path !== undefined && /^\/(?![/\\])/.test(path) ? path : undefined;
};

const pageOf = (value: unknown): number | undefined =>
  Number.isInteger(value) && Number(value) > 0 ? Number(value) : undefined;

export const signInSearchOf = ({ next }: Search): { next?: string | undefined } => ({ next: pathOf(next) });

export const integrationsSearchOf = ({ search }: Search): { search?: string | undefined } => ({
  search: textOf(search),
});

export const catalogueSearchOf = ({
  search,
  provider,
}: Search): { search?: string | undefined; provider?: string | undefined } => ({
  search: textOf(search),
  provider: textOf(provider),
});

export type ConnectionsSearch = {
  search?: string | undefined;
  integration?: string | undefined;
  status?: 'active' | 'needs_reauth' | 'blocked' | undefined;
  sort?: 'last_used' | undefined;
  page?: number | undefined;
};
const statuses = ['active', 'needs_reauth', 'blocked'] as const;
export const connectionsSearchOf = (given: Search): ConnectionsSearch => ({
  search: textOf(given.search),
  integration: textOf(given.integration),
  status: statuses.find((one) => one === given.status),
  sort: given.sort === 'last_used' ? given.sort : undefined,
  page: pageOf(given.page),
});

type SetUpSearch = {
  /** A link or an ID, and the gid of a tab. */
  spreadsheet?: string | undefined;
  tab?: number | undefined;
  /** The variant whose settings are changed. */
  edit?: string | undefined;
};
export const setUpSearchOf = ({ spreadsheet, tab, edit }: Search): SetUpSearch => ({
  spreadsheet: textOf(spreadsheet),
  tab: Number.isInteger(tab) && Number(tab) >= 0 ? Number(tab) : undefined,
  edit: textOf(edit),
});

export type ActivitySearch = {
  text?: string | undefined;
  type?: string | undefined;
  status?: 'success' | 'failed' | undefined;
  integration?: string | undefined;
  connection?: string | undefined;
  cursor?: string | undefined;
  operation?: string | undefined;
  range?: RangeName | undefined;
  /** Times with Z. */
  from?: string | undefined;
  to?: string | undefined;
};
const rangeNames = ['1h', '24h', '7d'] as const;
type RangeName = (typeof rangeNames)[number];
export const activitySearchOf = (given: Search): ActivitySearch => ({
  text: textOf(given.text),
  type: textOf(given.type),
  status: given.status === 'success' || given.status === 'failed' ? given.status : undefined,
  integration: textOf(given.integration),
  connection: textOf(given.connection),
  cursor: textOf(given.cursor),
  operation: textOf(given.operation),
  range: rangeNames.find((one) => one === given.range),
  from: timeOf(given.from),
  to: timeOf(given.to),
});

const runStates = ['waiting', 'running', 'succeeded', 'failed', 'cancelled'] as const;
const runKinds = ['sync', 'webhook', 'action', 'on-event'] as const;
export type RunsSearch = {
  integration?: string | undefined;
  function?: string | undefined;
  connection?: string | undefined;
  state?: (typeof runStates)[number] | undefined;
  kind?: (typeof runKinds)[number] | undefined;
  /** Where a page of runs begins. */
  cursor?: string | undefined;
};
const runsSearchOf = (given: Search): RunsSearch => ({
  integration: textOf(given.integration),
  function: textOf(given.function),
  connection: textOf(given.connection),
  state: runStates.find((one) => one === given.state),
  kind: runKinds.find((one) => one === given.kind),
  cursor: textOf(given.cursor),
});

const functionTypes = ['sync', 'action', 'on-event'] as const;
export type FunctionsSearch = RunsSearch & {
  /** The list of functions without one. */
  tab?: 'runs' | undefined;
  search?: string | undefined;
  type?: (typeof functionTypes)[number] | undefined;
  enabled?: 'on' | 'off' | undefined;
  page?: number | undefined;
};
export const functionsSearchOf = (given: Search): FunctionsSearch => ({
  ...runsSearchOf(given),
  tab: given.tab === 'runs' ? given.tab : undefined,
  search: textOf(given.search),
  type: functionTypes.find((one) => one === given.type),
  enabled: given.enabled === 'on' || given.enabled === 'off' ? given.enabled : undefined,
  page: pageOf(given.page),
});

const functionTabs = ['code', 'syncs', 'try', 'runs', 'versions'] as const;
const syncStates = ['running', 'paused', 'held', 'failing', 'active'] as const;
export type FunctionSearch = Omit<RunsSearch, 'integration' | 'function'> & {
  /** What the function says of itself without one. */
  tab?: (typeof functionTabs)[number] | undefined;
  /** Of syncs, and where a page of them begins. */
  is?: (typeof syncStates)[number] | undefined;
  after?: number | undefined;
  /** Whose code is shown; the one that runs without. */
  version?: number | undefined;
};
export const functionSearchOf = (given: Search): FunctionSearch => {
  const { integration: _, function: __, ...runs } = runsSearchOf(given);
  return {
    ...runs,
    tab: functionTabs.find((one) => one === given.tab),
    is: syncStates.find((one) => one === given.is),
    after: pageOf(given.after),
    version: pageOf(given.version),
  };
};

type RecordsSearch = { search?: string | undefined; page?: number | undefined };
export const recordsSearchOf = ({ search, page }: Search): RecordsSearch => ({
  search: textOf(search),
  page: pageOf(page),
});

export type DatasetSearch = {
  variant?: string | undefined;
  tab?: 'consumers' | 'settings' | undefined;
  action?: string | undefined;
  after?: string | undefined;
  ids?: string | undefined;
  size?: number | undefined;
  cursor?: string | undefined;
  /** The cursors of the pages before, the nearest last, with dots between. */
  trail?: string | undefined;
  page?: number | undefined;
  record?: string | undefined;
};
export const datasetSearchOf = (given: Search): DatasetSearch => ({
  variant: textOf(given.variant),
  tab: given.tab === 'consumers' || given.tab === 'settings' ? given.tab : undefined,
  action: textOf(given.action),
  after: textOf(given.after),
  ids: textOf(given.ids),
  size: pageOf(given.size),
  cursor: textOf(given.cursor),
  trail: textOf(given.trail),
  page: pageOf(given.page),
  record: textOf(given.record),
});

const eventsTabs = ['deliveries', 'feed', 'signing', 'addresses'] as const;
const deliveryStatuses = ['waiting', 'delivered', 'dead'] as const;
export type EventsSearch = {
  /** The list of endpoints without one. */
  tab?: (typeof eventsTabs)[number] | undefined;
  endpoint?: number | undefined;
  status?: (typeof deliveryStatuses)[number] | undefined;
  type?: string | undefined;
  /** Where a page of deliveries begins. */
  before?: number | undefined;
  /** Where a page of the feed begins. */
  position?: string | undefined;
  delivery?: number | undefined;
};
export const eventsSearchOf = (given: Search): EventsSearch => ({
  tab: eventsTabs.find((one) => one === given.tab),
  endpoint: pageOf(given.endpoint),
  status: deliveryStatuses.find((one) => one === given.status),
  type: textOf(given.type),
  before: pageOf(given.before),
  position: textOf(given.position),
  delivery: pageOf(given.delivery),
});

const settingsTabs = [
  'account',
  'environments',
  'keys',
  'variables',
  'connect-page',
  'people',
  'audit',
] as const;
export type SettingsTab = (typeof settingsTabs)[number];
export type SettingsSearch = {
  /** The first one that the role has without one. */
  tab?: SettingsTab | undefined;
  actor?: string | undefined;
  action?: string | undefined;
  target?: string | undefined;
  of?: 'installation' | undefined;
  cursor?: number | undefined;
};
export const settingsSearchOf = (given: Search): SettingsSearch => ({
  tab: settingsTabs.find((one) => one === given.tab),
  actor: textOf(given.actor),
  action: textOf(given.action),
  target: textOf(given.target),
  of: given.of === 'installation' ? 'installation' : undefined,
  cursor: pageOf(given.cursor),
});

type PlaygroundSearch = FormSearch & {
  integration?: string | undefined;
  connection?: string | undefined;
};
export const playgroundSearchOf = (given: Search): PlaygroundSearch => ({
  integration: textOf(given.integration),
  connection: textOf(given.connection),
  ...formSearchOf(given),
});
