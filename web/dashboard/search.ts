/** The search parameters of the address of each page. A value that the page does not accept is ignored. */
type Search = Record<string, unknown>;

/** A reader whose result has optional fields, so that links need to give only some of them. */
function optional<const T extends object>(read: (given: Search) => T) {
  return read as (given: Search) => { -readonly [K in keyof T]?: T[K] | undefined };
}

const textOf = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : typeof value === 'number' ? String(value) : undefined;

const timeOf = (value: unknown): string | undefined =>
  typeof value === 'string' && !Number.isNaN(Date.parse(value)) ? new Date(value).toISOString() : undefined;

/** A path of the dashboard; other addresses are ignored. */
const pathOf = (value: unknown): string | undefined => {
  const path = textOf(value);
  return path !== undefined && /^\/(?![/\\])/.test(path) ? path : undefined;
};

const pageOf = (value: unknown): number | undefined =>
  Number.isInteger(value) && Number(value) > 0 ? Number(value) : undefined;

export const signInSearchOf = optional(({ next }) => ({ next: pathOf(next) }));

export const homeSearchOf = optional(({ span }) => ({
  /** Of the chart of calls; undefined: 24 hours. */
  span: span === '14 days' ? span : undefined,
}));

export const integrationsSearchOf = optional(({ search, faulty }) => ({
  search: textOf(search),
  /** Only integrations with an error. */
  faulty: faulty === true || undefined,
}));

export const integrationSearchOf = optional(({ tab }) => ({
  /** Undefined: the overview. */
  tab: tab === 'settings' ? tab : undefined,
}));

export const catalogueSearchOf = optional(({ search, category, provider, define }) => ({
  search: textOf(search),
  category: textOf(category),
  provider: textOf(provider),
  /** The provider whose definition is edited; `new`: one is added. */
  define: textOf(define),
}));

const statuses = ['active', 'needs_reauth', 'blocked'] as const;
/** The states of active connections. */
export const activeStates = [
  'healthy',
  'unverified',
  'scopes_missing',
  'provider_unavailable',
  'integration_error',
] as const;
export const connectionsSearchOf = optional((given) => ({
  search: textOf(given.search),
  integration: textOf(given.integration),
  status: [...statuses, ...activeStates].find((one) => one === given.status),
  /** Only connections with a failing sync. */
  syncs: given.syncs === 'failing' ? given.syncs : undefined,
  /** A tag as `name=value`. */
  tag: textOf(given.tag),
  sort: given.sort === 'last_used' ? given.sort : undefined,
  page: pageOf(given.page),
}));
export type ConnectionsSearch = ReturnType<typeof connectionsSearchOf>;

export const linksSearchOf = optional((given) => ({ before: pageOf(given.before) }));

const connectionTabs = ['authorization', 'syncs', 'records', 'activity', 'settings'] as const;
export const timelineKinds = ['connects', 'refreshes', 'syncs', 'events', 'failures'] as const;
export type TimelineKind = (typeof timelineKinds)[number];
export const connectionSearchOf = optional(({ tab, kind }) => ({
  /** Undefined: the overview. */
  tab: connectionTabs.find((one) => one === tab),
  /** The kind of entries in the timeline. */
  kind: timelineKinds.find((one) => one === kind),
}));

export type ConnectionTab = ReturnType<typeof connectionSearchOf>['tab'];

export const setUpSearchOf = optional(({ spreadsheet, tab, edit }) => ({
  /** A link or an ID, and the ID of a tab. */
  spreadsheet: textOf(spreadsheet),
  tab: Number.isInteger(tab) && Number(tab) >= 0 ? Number(tab) : undefined,
  /** The variant whose settings are changed. */
  edit: textOf(edit),
}));

const rangeNames = ['1h', '24h', '7d'] as const;
export const activitySearchOf = optional((given) => ({
  text: textOf(given.text),
  type: textOf(given.type),
  status: given.status === 'success' || given.status === 'failed' ? given.status : undefined,
  integration: textOf(given.integration),
  connection: textOf(given.connection),
  cursor: textOf(given.cursor),
  operation: textOf(given.operation),
  range: rangeNames.find((one) => one === given.range),
  /** Times in UTC. */
  from: timeOf(given.from),
  to: timeOf(given.to),
}));
export type ActivitySearch = ReturnType<typeof activitySearchOf>;

const runStates = ['waiting', 'running', 'succeeded', 'failed', 'cancelled'] as const;
const runKinds = ['sync', 'webhook', 'action', 'on-event'] as const;
const runsSearchOf = optional((given) => ({
  integration: textOf(given.integration),
  function: textOf(given.function),
  connection: textOf(given.connection),
  state: runStates.find((one) => one === given.state),
  kind: runKinds.find((one) => one === given.kind),
  /** The start of a page of runs. */
  cursor: textOf(given.cursor),
}));
export type RunsSearch = ReturnType<typeof runsSearchOf>;

const functionTypes = ['sync', 'action', 'on-event'] as const;
const functionsTabs = ['syncs', 'runs'] as const;
const syncStates = ['running', 'paused', 'held', 'failing', 'active'] as const;
const syncsSearchOf = optional((given) => ({
  integration: textOf(given.integration),
  function: textOf(given.function),
  connection: textOf(given.connection),
  /** The state of syncs, and the start of a page of them. */
  is: syncStates.find((one) => one === given.is),
  after: pageOf(given.after),
}));
export type SyncsSearch = ReturnType<typeof syncsSearchOf>;

export const functionsSearchOf = optional((given) => ({
  ...runsSearchOf(given),
  ...syncsSearchOf(given),
  /** Undefined: the list of functions. */
  tab: functionsTabs.find((one) => one === given.tab),
  search: textOf(given.search),
  type: functionTypes.find((one) => one === given.type),
  enabled: given.enabled === 'on' || given.enabled === 'off' ? given.enabled : undefined,
  page: pageOf(given.page),
}));
export type FunctionsSearch = ReturnType<typeof functionsSearchOf>;

const functionTabs = ['code', 'syncs', 'try', 'runs', 'versions'] as const;
export const functionSearchOf = optional((given) => {
  const { integration: _, function: __, ...lists } = { ...runsSearchOf(given), ...syncsSearchOf(given) };
  return {
    ...lists,
    /** Undefined: the declaration of the function. */
    tab: functionTabs.find((one) => one === given.tab),
    /** The version of the code; undefined: the current one. */
    version: pageOf(given.version),
  };
});
export type FunctionSearch = ReturnType<typeof functionSearchOf>;

export const recordsSearchOf = optional(({ search, cursor }) => ({
  search: textOf(search),
  cursor: textOf(cursor),
}));

export const datasetSearchOf = optional((given) => ({
  variant: textOf(given.variant),
  tab: given.tab === 'consumers' || given.tab === 'settings' ? given.tab : undefined,
  action: textOf(given.action),
  after: textOf(given.after),
  ids: textOf(given.ids),
  size: pageOf(given.size),
  cursor: textOf(given.cursor),
  /** The cursors of the previous pages, the nearest last, separated by dots. */
  trail: textOf(given.trail),
  page: pageOf(given.page),
  record: textOf(given.record),
}));
export type DatasetSearch = ReturnType<typeof datasetSearchOf>;

const eventsTabs = ['deliveries', 'feed', 'signing', 'addresses'] as const;
const deliveryStatuses = ['waiting', 'delivered', 'dead'] as const;
export const eventsSearchOf = optional((given) => ({
  /** Undefined: the list of endpoints. */
  tab: eventsTabs.find((one) => one === given.tab),
  /** Only endpoints that fail. */
  failing: given.failing === true || undefined,
  endpoint: pageOf(given.endpoint),
  status: deliveryStatuses.find((one) => one === given.status),
  type: textOf(given.type),
  /** The start of a page of deliveries. */
  before: pageOf(given.before),
  /** The start of a page of the feed. */
  position: textOf(given.position),
  delivery: pageOf(given.delivery),
}));
export type EventsSearch = ReturnType<typeof eventsSearchOf>;

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
export const settingsSearchOf = optional((given) => ({
  /** Undefined: the first tab that the role may see. */
  tab: settingsTabs.find((one) => one === given.tab),
  actor: textOf(given.actor),
  action: textOf(given.action),
  target: textOf(given.target),
  of: given.of === 'installation' ? 'installation' : undefined,
  cursor: pageOf(given.cursor),
}));
export type SettingsSearch = ReturnType<typeof settingsSearchOf>;

export const playgroundSearchOf = optional((given) => ({
  integration: textOf(given.integration),
  connection: textOf(given.connection),
  ...formSearchOf(given),
}));

/** The request of the playground. */
const formSearchOf = optional((given) => ({
  method: textOnly(given.method),
  path: textOnly(given.path),
  fields: fieldsOf(given.fields),
  query: pairsOf(given.query),
  headers: pairsOf(given.headers),
  body: textOnly(given.body),
}));
export type FormSearch = ReturnType<typeof formSearchOf>;

function textOnly(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function fieldsOf(value: unknown): Record<string, string> | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, String(one)]));
}

function pairsOf(value: unknown): [string, string][] | undefined {
  if (!Array.isArray(value)) return undefined;
  return value.filter(Array.isArray).map(([name, one]) => [String(name ?? ''), String(one ?? '')]);
}
