import type { QueryClient } from '@tanstack/react-query';
import {
  createRootRouteWithContext,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
  redirect,
} from '@tanstack/react-router';
import { Fault } from '../api/client.ts';
import { type FormSearch, formSearchOf } from './playground/form-search.ts';
import { BrokenPage } from './shell/BrokenPage.tsx';
import { lastEnvironment } from './shell/environment.ts';
import { NoSuchPage } from './shell/NoSuchPage.tsx';
import { Shell } from './shell/Shell.tsx';
import { type Me, meQuery } from './sign-in/queries.ts';

/**
 * Every page and its address. The environment stands in the path, filters, sort and cursor in the search, so that an
 * address can be sent to somebody else. Pages are loaded when they are first opened.
 */
const root = createRootRouteWithContext<{ queries: QueryClient }>()({
  component: Outlet,
  errorComponent: BrokenPage,
});
type Search = Record<string, unknown>;
const textOf = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : typeof value === 'number' ? String(value) : undefined;

/** Only an address of the dashboard itself. */
const pathOf = (value: unknown): string | undefined => {
  const path = textOf(value);
  return path !== undefined && /^\/(?![/\\])/.test(path) ? path : undefined;
};

const signIn = createRoute({
  getParentRoute: () => root,
  path: '/sign-in',
  validateSearch: ({ next }: Search): { next?: string | undefined } => ({ next: pathOf(next) }),
  component: lazyRouteComponent(() => import('./sign-in/SignInPage.tsx'), 'SignInPage'),
});
const invitation = createRoute({
  getParentRoute: () => root,
  path: '/invitation',
  component: lazyRouteComponent(() => import('./sign-in/InvitationPage.tsx'), 'InvitationPage'),
});
const resetPassword = createRoute({
  getParentRoute: () => root,
  path: '/reset-password',
  component: lazyRouteComponent(() => import('./sign-in/ResetPasswordPage.tsx'), 'ResetPasswordPage'),
});
const home = createRoute({
  getParentRoute: () => root,
  path: '/',
  beforeLoad: async ({ context }) => {
    const me = await whoever(context.queries, undefined);
    const names = me.environments.map(({ name }) => name);
    const last = lastEnvironment();
    const environment = last !== undefined && names.includes(last) ? last : names[0];
    if (environment === undefined) return;
    throw redirect({ to: '/$environment/getting-started', params: { environment } });
  },
  component: lazyRouteComponent(() => import('./shell/NoEnvironmentPage.tsx'), 'NoEnvironmentPage'),
});
const inside = createRoute({
  getParentRoute: () => root,
  path: '/$environment',
  beforeLoad: ({ context, location }) => whoever(context.queries, location.pathname + location.searchStr),
  // The frame stays around its pages, so that the focus does in the switch between environments.
  remountDeps: () => 'shell',
  component: Shell,
  errorComponent: BrokenPage,
});
const gettingStarted = createRoute({
  getParentRoute: () => inside,
  path: '/getting-started',
  component: lazyRouteComponent(
    () => import('./getting-started/GettingStartedPage.tsx'),
    'GettingStartedPage',
  ),
});
const integrations = createRoute({
  getParentRoute: () => inside,
  path: '/integrations',
  validateSearch: ({ search }: Search): { search?: string | undefined } => ({ search: textOf(search) }),
  component: lazyRouteComponent(() => import('./integrations/IntegrationsPage.tsx'), 'IntegrationsPage'),
});
const catalogue = createRoute({
  getParentRoute: () => inside,
  path: '/integrations/new',
  validateSearch: ({
    search,
    provider,
  }: Search): { search?: string | undefined; provider?: string | undefined } => ({
    search: textOf(search),
    provider: textOf(provider),
  }),
  component: lazyRouteComponent(() => import('./integrations/CataloguePage.tsx'), 'CataloguePage'),
});
const integration = createRoute({
  getParentRoute: () => inside,
  path: '/integrations/of/$key',
  component: lazyRouteComponent(() => import('./integrations/IntegrationPage.tsx'), 'IntegrationPage'),
});

export type ConnectionsSearch = {
  search?: string | undefined;
  integration?: string | undefined;
  status?: 'active' | 'needs_reauth' | 'blocked' | undefined;
  sort?: 'last_used' | undefined;
  page?: number | undefined;
};
const statuses = ['active', 'needs_reauth', 'blocked'] as const;
const connections = createRoute({
  getParentRoute: () => inside,
  path: '/connections',
  validateSearch: (given: Search): ConnectionsSearch => ({
    search: textOf(given.search),
    integration: textOf(given.integration),
    status: statuses.find((one) => one === given.status),
    sort: given.sort === 'last_used' ? given.sort : undefined,
    page: Number.isInteger(given.page) && Number(given.page) > 0 ? Number(given.page) : undefined,
  }),
  component: lazyRouteComponent(() => import('./connections/ConnectionsPage.tsx'), 'ConnectionsPage'),
});
const connection = createRoute({
  getParentRoute: () => inside,
  path: '/connections/$integration/$id',
  component: lazyRouteComponent(() => import('./connections/ConnectionPage.tsx'), 'ConnectionPage'),
});

export type SetUpSearch = {
  /** A link or an ID, and the gid of a tab. */
  spreadsheet?: string | undefined;
  tab?: number | undefined;
  /** The variant whose settings are changed. */
  edit?: string | undefined;
};
const sheetSetUp = createRoute({
  getParentRoute: () => inside,
  path: '/connections/$integration/$id/sheets/new',
  validateSearch: ({ spreadsheet, tab, edit }: Search): SetUpSearch => ({
    spreadsheet: textOf(spreadsheet),
    tab: Number.isInteger(tab) && Number(tab) >= 0 ? Number(tab) : undefined,
    edit: textOf(edit),
  }),
  component: lazyRouteComponent(() => import('./sheets/SetUpPage.tsx'), 'SetUpPage'),
});
const sheet = createRoute({
  getParentRoute: () => inside,
  path: '/connections/$integration/$id/sheets/of/$variant',
  component: lazyRouteComponent(() => import('./sheets/SheetPage.tsx'), 'SheetPage'),
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
const timeOf = (value: unknown): string | undefined =>
  typeof value === 'string' && !Number.isNaN(Date.parse(value)) ? new Date(value).toISOString() : undefined;
const activity = createRoute({
  getParentRoute: () => inside,
  path: '/activity',
  validateSearch: (given: Search): ActivitySearch => ({
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
  }),
  component: lazyRouteComponent(() => import('./activity/ActivityPage.tsx'), 'ActivityPage'),
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
const functions = createRoute({
  getParentRoute: () => inside,
  path: '/functions',
  validateSearch: (given: Search): FunctionsSearch => ({
    ...runsSearchOf(given),
    tab: given.tab === 'runs' ? given.tab : undefined,
    search: textOf(given.search),
    type: functionTypes.find((one) => one === given.type),
    enabled: given.enabled === 'on' || given.enabled === 'off' ? given.enabled : undefined,
    page: pageOf(given.page),
  }),
  component: lazyRouteComponent(() => import('./functions/FunctionsPage.tsx'), 'FunctionsPage'),
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
const functionRoute = createRoute({
  getParentRoute: () => inside,
  path: '/functions/of/$integration/$type/$name',
  validateSearch: (given: Search): FunctionSearch => {
    const { integration: _, function: __, ...runs } = runsSearchOf(given);
    return {
      ...runs,
      tab: functionTabs.find((one) => one === given.tab),
      is: syncStates.find((one) => one === given.is),
      after: pageOf(given.after),
      version: pageOf(given.version),
    };
  },
  component: lazyRouteComponent(() => import('./functions/FunctionPage.tsx'), 'FunctionPage'),
});
const run = createRoute({
  getParentRoute: () => inside,
  path: '/functions/runs/$run',
  component: lazyRouteComponent(() => import('./functions/RunPage.tsx'), 'RunPage'),
});

const pageOf = (value: unknown): number | undefined =>
  Number.isInteger(value) && Number(value) > 0 ? Number(value) : undefined;

export type RecordsSearch = { search?: string | undefined; page?: number | undefined };
const records = createRoute({
  getParentRoute: () => inside,
  path: '/records',
  validateSearch: ({ search, page }: Search): RecordsSearch => ({
    search: textOf(search),
    page: pageOf(page),
  }),
  component: lazyRouteComponent(() => import('./records/RecordsPage.tsx'), 'RecordsPage'),
});
const retention = createRoute({
  getParentRoute: () => inside,
  path: '/records/retention',
  component: lazyRouteComponent(() => import('./records/RetentionPage.tsx'), 'RetentionPage'),
});
const datasets = createRoute({
  getParentRoute: () => inside,
  path: '/records/of/$integration/$id',
  component: lazyRouteComponent(() => import('./records/DatasetsPage.tsx'), 'DatasetsPage'),
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
const dataset = createRoute({
  getParentRoute: () => inside,
  path: '/records/of/$integration/$id/$model',
  validateSearch: (given: Search): DatasetSearch => ({
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
  }),
  remountDeps: ({ params, search }) => [params, search.variant],
  component: lazyRouteComponent(() => import('./records/DatasetPage.tsx'), 'DatasetPage'),
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
const events = createRoute({
  getParentRoute: () => inside,
  path: '/events',
  validateSearch: (given: Search): EventsSearch => ({
    tab: eventsTabs.find((one) => one === given.tab),
    endpoint: pageOf(given.endpoint),
    status: deliveryStatuses.find((one) => one === given.status),
    type: textOf(given.type),
    before: pageOf(given.before),
    position: textOf(given.position),
    delivery: pageOf(given.delivery),
  }),
  component: lazyRouteComponent(() => import('./events/EventsPage.tsx'), 'EventsPage'),
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
const settings = createRoute({
  getParentRoute: () => inside,
  path: '/settings',
  validateSearch: (given: Search): SettingsSearch => ({
    tab: settingsTabs.find((one) => one === given.tab),
    actor: textOf(given.actor),
    action: textOf(given.action),
    target: textOf(given.target),
    of: given.of === 'installation' ? 'installation' : undefined,
    cursor: pageOf(given.cursor),
  }),
  component: lazyRouteComponent(() => import('./settings/SettingsPage.tsx'), 'SettingsPage'),
});

export type PlaygroundSearch = FormSearch & {
  integration?: string | undefined;
  connection?: string | undefined;
};
const playground = createRoute({
  getParentRoute: () => inside,
  path: '/playground',
  validateSearch: (given: Search): PlaygroundSearch => ({
    integration: textOf(given.integration),
    connection: textOf(given.connection),
    ...formSearchOf(given),
  }),
  component: lazyRouteComponent(() => import('./playground/PlaygroundPage.tsx'), 'PlaygroundPage'),
});

/** Who is signed in; everybody else goes to the sign-in page and comes back after. */
async function whoever(queries: QueryClient, next: string | undefined): Promise<Me> {
  try {
    return await queries.ensureQueryData(meQuery());
  } catch (error) {
    if (error instanceof Fault && error.status === 401) throw redirect({ to: '/sign-in', search: { next } });
    throw error;
  }
}

const tree = root.addChildren([
  home,
  signIn,
  invitation,
  resetPassword,
  inside.addChildren([
    gettingStarted,
    integrations,
    catalogue,
    integration,
    connections,
    connection,
    sheetSetUp,
    sheet,
    activity,
    playground,
    functions,
    functionRoute,
    run,
    records,
    retention,
    datasets,
    dataset,
    events,
    settings,
  ]),
]);

export function createDashboardRouter() {
  return createRouter({
    routeTree: tree,
    basepath: '/app',
    defaultPreload: 'intent',
    // Another address of a page is another page: what was typed on one connection must not be saved to the next.
    defaultRemountDeps: ({ params }) => params,
    scrollRestoration: true,
    defaultErrorComponent: BrokenPage,
    defaultNotFoundComponent: NoSuchPage,
    // Filled in by `main.tsx` before anything is loaded.
    context: { queries: undefined as never },
  });
}

declare module '@tanstack/react-router' {
  interface Register {
    router: ReturnType<typeof createDashboardRouter>;
  }
}
