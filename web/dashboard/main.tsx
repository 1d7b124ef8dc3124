import { MantineProvider } from '@mantine/core';
import { useNotifications } from '@mantine/notifications';
import { type Query, QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { lazy, StrictMode, Suspense, useState } from 'react';
import { createRoot } from 'react-dom/client';
import '@mantine/core/styles.css';
import '@mantine/notifications/styles.css';
import '@mantine/spotlight/styles.css';
import '../ui/tokens.css';
import '../ui/ui.css';
import './dashboard.css';
import { createQueries, isSignedOut } from './query-client.ts';
import { createDashboardRouter } from './router.tsx';
import { showFailedChanges } from './shell/failed-changes.tsx';
import { removeUserData } from './shell/sign-out.ts';
import { meQuery, whoIsSignedIn } from './sign-in/queries.ts';
import { theme } from './theme.ts';

/**
 * The dashboard. A page loads and mutates, `queries.ts` beside it calls the service, and `ui/` has no terms of the
 * product.
 */
const nonce = document.querySelector<HTMLScriptElement>('script[nonce]')?.nonce ?? '';
// Libraries that add a style element read the nonce here (the scroll lock of a dialog).
Object.assign(globalThis, { __webpack_nonce__: nonce });

// The root address and the links in e-mails lead here, too.
const { pathname, search, hash } = location;
if (!/^\/app(\/|$)/.test(pathname)) {
  history.replaceState(null, '', `/app${pathname === '/' ? '' : pathname}${search}${hash}`);
}

const router = createDashboardRouter();
// The code of the page is loaded while the service is asked who is signed in.
for (const { routeId } of router.matchRoutes(router.latestLocation)) {
  const { component } = router.routesById[routeId as keyof typeof router.routesById].options;
  void (component as { preload?: () => Promise<void> } | undefined)?.preload?.();
}
// The frame of the document is empty and hidden behind a page.
router.subscribe('onRendered', () => document.querySelector('.shell')?.remove());
const queries = createQueries({ onSignedOut: () => void leaveUnlessSignedIn() });
router.update({ context: { queries } });
showFailedChanges(queries.getMutationCache(), (path) => router.history.push(path));

let isAsked = false;
async function leaveUnlessSignedIn(): Promise<void> {
  if (isAsked) return;
  isAsked = true;
  const former = queries.getQueryData(meQuery().queryKey)?.id;
  let present = await whoIsSignedIn();
  // A change of the password ends the session, and only its response has the next one.
  if (present === null && queries.isMutating() > 0) {
    await mutationsSettled();
    present = await whoIsSignedIn();
  }
  isAsked = false;
  if (present === undefined) return;
  // The call may have used a session that was replaced meanwhile, as after a change of the password.
  if (present !== null && (former === undefined || former === present)) return askAgain();
  const { pathname: at, searchStr } = router.state.location;
  if (!at.startsWith('/sign-in')) await router.navigate({ to: '/sign-in', search: { next: at + searchStr } });
  // The Back button must not show the data of the previous user.
  removeUserData(queries);
}

function mutationsSettled(): Promise<void> {
  return new Promise((resolve) => {
    const stop = queries.getMutationCache().subscribe(() => {
      if (queries.isMutating() > 0) return;
      stop();
      resolve();
    });
  });
}

/** The number of responses of a query at its last refetch: one refetch is enough until it is answered. */
const askedAgain = new WeakMap<Query, number>();
async function askAgain(): Promise<void> {
  await queries.refetchQueries({
    type: 'active',
    predicate: (query) => {
      const { error, dataUpdateCount } = query.state;
      if (!isSignedOut(error) || askedAgain.get(query) === dataUpdateCount) return false;
      askedAgain.set(query, dataUpdateCount);
      return true;
    },
  });
}

const Notifications = lazy(async () => ({ default: (await import('./shell/notices.ts')).Notifications }));

/** The notifications, loaded with the first one. */
function Notices() {
  const { notifications } = useNotifications();
  const [isUsed, setUsed] = useState(false);
  if (notifications.length > 0 && !isUsed) setUsed(true);
  return <Suspense>{isUsed && <Notifications position="bottom-right" />}</Suspense>;
}

const root = document.getElementById('root');
if (root === null) throw new Error('index.html has no #root');
createRoot(root).render(
  <StrictMode>
    <MantineProvider theme={theme} defaultColorScheme="auto" getStyleNonce={() => nonce}>
      <QueryClientProvider client={queries}>
        <Notices />
        <RouterProvider router={router} context={{ queries }} />
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
