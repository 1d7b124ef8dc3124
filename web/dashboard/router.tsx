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
import { healthQuery } from './home/queries.ts';
import {
  activitySearchOf,
  catalogueSearchOf,
  connectionSearchOf,
  connectionsSearchOf,
  datasetSearchOf,
  eventsSearchOf,
  functionSearchOf,
  functionsSearchOf,
  homeSearchOf,
  integrationSearchOf,
  integrationsSearchOf,
  linksSearchOf,
  playgroundSearchOf,
  recordsSearchOf,
  settingsSearchOf,
  setUpSearchOf,
  signInSearchOf,
} from './search.ts';
import { lastEnvironment } from './shell/environment.ts';
import { BrokenPage, NoSuchPage } from './shell/NoSuchPage.tsx';
import { Shell } from './shell/Shell.tsx';
import { type Me, meQuery } from './sign-in/queries.ts';

/**
 * The pages and their addresses. The environment is in the path, and filters, sort and cursor are in the search, so
 * that an address can be shared. Pages are loaded on demand.
 */
const root = createRootRouteWithContext<{ queries: QueryClient }>()({
  component: Outlet,
  errorComponent: BrokenPage,
});
const signIn = createRoute({
  getParentRoute: () => root,
  path: '/sign-in',
  validateSearch: signInSearchOf,
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
/** Leads to the home page of an environment, or to "Getting started" before its first connection. */
const start = createRoute({
  getParentRoute: () => root,
  path: '/',
  beforeLoad: async ({ context }) => {
    const me = await signedInUser(context.queries, undefined);
    const names = me.environments.map(({ name }) => name);
    const last = lastEnvironment();
    const environment = last !== undefined && names.includes(last) ? last : names[0];
    if (environment === undefined) return;
    const health = await context.queries
      .fetchQuery({ ...healthQuery(environment), retry: false })
      .catch(() => undefined);
    const isNew = health !== undefined && Object.values(health.connections).every((count) => count === 0);
    const to = isNew ? '/$environment/getting-started' : '/$environment/home';
    throw redirect({ to, params: { environment } });
  },
  component: lazyRouteComponent(() => import('./shell/NoEnvironmentPage.tsx'), 'NoEnvironmentPage'),
});
const inside = createRoute({
  getParentRoute: () => root,
  path: '/$environment',
  beforeLoad: async ({ context: { queries }, location, params: { environment } }) => {
    const has = ({ environments }: Me) => environments.some(({ name }) => name === environment);
    if (has(await signedInUser(queries, location.pathname + location.searchStr))) return { isKnown: true };
    // It may be newer than the cached list.
    return { isKnown: has(await queries.fetchQuery({ ...meQuery(), staleTime: 0 })) };
  },
  // The frame is kept when the environment changes, so that the switch keeps the focus.
  remountDeps: () => 'shell',
  component: Shell,
  errorComponent: BrokenPage,
});
/** The address of an environment alone. */
const environmentStart = createRoute({
  getParentRoute: () => inside,
  path: '/',
  beforeLoad: ({ params }) => {
    throw redirect({ to: '/$environment/home', params });
  },
});
const home = createRoute({
  getParentRoute: () => inside,
  path: '/home',
  validateSearch: homeSearchOf,
  component: lazyRouteComponent(() => import('./home/HomePage.tsx'), 'HomePage'),
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
  validateSearch: integrationsSearchOf,
  component: lazyRouteComponent(() => import('./integrations/IntegrationsPage.tsx'), 'IntegrationsPage'),
});
const catalogue = createRoute({
  getParentRoute: () => inside,
  path: '/integrations/new',
  validateSearch: catalogueSearchOf,
  component: lazyRouteComponent(() => import('./integrations/CataloguePage.tsx'), 'CataloguePage'),
});
const integration = createRoute({
  getParentRoute: () => inside,
  path: '/integrations/of/$key',
  validateSearch: integrationSearchOf,
  component: lazyRouteComponent(() => import('./integrations/IntegrationPage.tsx'), 'IntegrationPage'),
});

const connections = createRoute({
  getParentRoute: () => inside,
  path: '/connections',
  validateSearch: connectionsSearchOf,
  component: lazyRouteComponent(() => import('./connections/ConnectionsPage.tsx'), 'ConnectionsPage'),
});
const connectLinks = createRoute({
  getParentRoute: () => inside,
  path: '/connections/links',
  validateSearch: linksSearchOf,
  component: lazyRouteComponent(() => import('./connections/LinksPage.tsx'), 'LinksPage'),
});
const connection = createRoute({
  getParentRoute: () => inside,
  path: '/connections/$integration/$id',
  validateSearch: connectionSearchOf,
  component: lazyRouteComponent(() => import('./connections/ConnectionPage.tsx'), 'ConnectionPage'),
});

const sheetSetUp = createRoute({
  getParentRoute: () => inside,
  path: '/connections/$integration/$id/sheets/new',
  validateSearch: setUpSearchOf,
  component: lazyRouteComponent(() => import('./sheets/SetUpPage.tsx'), 'SetUpPage'),
});
const sheet = createRoute({
  getParentRoute: () => inside,
  path: '/connections/$integration/$id/sheets/of/$variant',
  component: lazyRouteComponent(() => import('./sheets/SheetPage.tsx'), 'SheetPage'),
});

const activity = createRoute({
  getParentRoute: () => inside,
  path: '/activity',
  validateSearch: activitySearchOf,
  component: lazyRouteComponent(() => import('./activity/ActivityPage.tsx'), 'ActivityPage'),
});

const functions = createRoute({
  getParentRoute: () => inside,
  path: '/functions',
  validateSearch: functionsSearchOf,
  component: lazyRouteComponent(() => import('./functions/FunctionsPage.tsx'), 'FunctionsPage'),
});

const functionRoute = createRoute({
  getParentRoute: () => inside,
  path: '/functions/of/$integration/$type/$name',
  validateSearch: functionSearchOf,
  component: lazyRouteComponent(() => import('./functions/FunctionPage.tsx'), 'FunctionPage'),
});
const run = createRoute({
  getParentRoute: () => inside,
  path: '/functions/runs/$run',
  component: lazyRouteComponent(() => import('./functions/RunPage.tsx'), 'RunPage'),
});

const records = createRoute({
  getParentRoute: () => inside,
  path: '/records',
  validateSearch: recordsSearchOf,
  component: lazyRouteComponent(() => import('./records/RecordsPage.tsx'), 'RecordsPage'),
});
const retention = createRoute({
  getParentRoute: () => inside,
  path: '/records/retention',
  component: lazyRouteComponent(() => import('./records/RetentionPage.tsx'), 'RetentionPage'),
});
/** Leads to the tab of the connection with its datasets. */
const datasets = createRoute({
  getParentRoute: () => inside,
  path: '/records/of/$integration/$id',
  beforeLoad: ({ params }) => {
    throw redirect({ to: '/$environment/connections/$integration/$id', params, search: { tab: 'records' } });
  },
});

const dataset = createRoute({
  getParentRoute: () => inside,
  path: '/records/of/$integration/$id/$model',
  validateSearch: datasetSearchOf,
  remountDeps: ({ params, search }) => [params, search.variant],
  component: lazyRouteComponent(() => import('./records/DatasetPage.tsx'), 'DatasetPage'),
});

const events = createRoute({
  getParentRoute: () => inside,
  path: '/events',
  validateSearch: eventsSearchOf,
  component: lazyRouteComponent(() => import('./events/EventsPage.tsx'), 'EventsPage'),
});

const settings = createRoute({
  getParentRoute: () => inside,
  path: '/settings',
  validateSearch: settingsSearchOf,
  component: lazyRouteComponent(() => import('./settings/SettingsPage.tsx'), 'SettingsPage'),
});

const playground = createRoute({
  getParentRoute: () => inside,
  path: '/playground',
  validateSearch: playgroundSearchOf,
  component: lazyRouteComponent(() => import('./playground/Playground.tsx'), 'PlaygroundPage'),
});

/** The signed-in user. Any other visitor is redirected to the sign-in page and returns after it. */
async function signedInUser(queries: QueryClient, next: string | undefined): Promise<Me> {
  try {
    return await queries.ensureQueryData(meQuery());
  } catch (error) {
    if (error instanceof Fault && error.status === 401) throw redirect({ to: '/sign-in', search: { next } });
    throw error;
  }
}

const tree = root.addChildren([
  start,
  signIn,
  invitation,
  resetPassword,
  inside.addChildren([
    environmentStart,
    home,
    gettingStarted,
    integrations,
    catalogue,
    integration,
    connections,
    connectLinks,
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
    // Another address is another page: text entered for one connection must not be saved to the next.
    defaultRemountDeps: ({ params }) => params,
    scrollRestoration: true,
    defaultErrorComponent: BrokenPage,
    defaultNotFoundComponent: NoSuchPage,
    // Set by `main.tsx` before the first load.
    context: { queries: undefined as never },
  });
}

declare module '@tanstack/react-router' {
  interface Register {
    router: ReturnType<typeof createDashboardRouter>;
  }
}
