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
import { BrokenPage } from './shell/BrokenPage.tsx';
import { lastEnvironment } from './shell/environment.ts';
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
    const environment = last !== undefined && names.includes(last) ? last : (names[0] ?? 'dev');
    throw redirect({ to: '/$environment/getting-started', params: { environment } });
  },
});
const inside = createRoute({
  getParentRoute: () => root,
  path: '/$environment',
  beforeLoad: ({ context, location }) => whoever(context.queries, location.pathname + location.searchStr),
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
    page: Number.isInteger(given.page) && Number(given.page) > 0 ? Number(given.page) : undefined,
  }),
  component: lazyRouteComponent(() => import('./connections/ConnectionsPage.tsx'), 'ConnectionsPage'),
});
const connection = createRoute({
  getParentRoute: () => inside,
  path: '/connections/$integration/$id',
  component: lazyRouteComponent(() => import('./connections/ConnectionPage.tsx'), 'ConnectionPage'),
});

export type ActivitySearch = {
  text?: string | undefined;
  type?: string | undefined;
  status?: 'success' | 'failed' | undefined;
  integration?: string | undefined;
  connection?: string | undefined;
  cursor?: string | undefined;
  operation?: string | undefined;
};
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
  }),
  component: lazyRouteComponent(() => import('./activity/ActivityPage.tsx'), 'ActivityPage'),
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
    activity,
  ]),
]);

export function createDashboardRouter() {
  return createRouter({
    routeTree: tree,
    basepath: '/app',
    defaultPreload: 'intent',
    scrollRestoration: true,
    defaultErrorComponent: BrokenPage,
    defaultNotFoundComponent: () => <BrokenPage error={new Error('There is no such page.')} />,
    // Filled in by `main.tsx` before anything is loaded.
    context: { queries: undefined as never },
  });
}

declare module '@tanstack/react-router' {
  interface Register {
    router: ReturnType<typeof createDashboardRouter>;
  }
}
