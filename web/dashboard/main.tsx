import { MantineProvider } from '@mantine/core';
import { ModalsProvider } from '@mantine/modals';
import { Notifications } from '@mantine/notifications';
import { type Query, QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import '@mantine/core/styles.css';
import '@mantine/notifications/styles.css';
import '@mantine/spotlight/styles.css';
import '../ui/ui.css';
import './dashboard.css';
import { createQueries, isSignedOut } from './query-client.ts';
import { createDashboardRouter } from './router.tsx';
import { meQuery, whoIsSignedIn } from './sign-in/queries.ts';
import { theme } from './theme.ts';

/** The dashboard: a page loads and mutates, `queries.ts` beside it calls the service, `ui/` knows no noun of ours. */
const nonce = document.querySelector<HTMLScriptElement>('script[nonce]')?.nonce ?? '';
// Where libraries that write a style element of their own look for it (the lock of scrolling behind a dialog).
Object.assign(globalThis, { __webpack_nonce__: nonce });

// The service's own address, and those of links in mails, lead here, too.
const { pathname, search, hash } = location;
if (!/^\/app(\/|$)/.test(pathname)) {
  history.replaceState(null, '', `/app${pathname === '/' ? '' : pathname}${search}${hash}`);
}

const router = createDashboardRouter();
const queries = createQueries({ onSignedOut: () => void leaveUnlessSignedIn() });
router.update({ context: { queries } });

let isAsked = false;
async function leaveUnlessSignedIn(): Promise<void> {
  if (isAsked) return;
  isAsked = true;
  const former = queries.getQueryData(meQuery().queryKey)?.id;
  const present = await whoIsSignedIn();
  isAsked = false;
  if (present === undefined) return;
  // A call may have gone by a session that a new one has replaced meanwhile, as where the password is changed.
  if (present !== null && (former === undefined || former === present)) return askAgain();
  const { pathname: at, searchStr } = router.state.location;
  if (!at.startsWith('/sign-in')) await router.navigate({ to: '/sign-in', search: { next: at + searchStr } });
  // What the former user was shown is nobody's any more, also by way of the Back button.
  queries.removeQueries({ predicate: ({ queryKey: [name] }) => name !== 'sign-in ways' });
}

/** How often a query had been answered when it was last asked again: once is enough until it is answered. */
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

const root = document.getElementById('root');
if (root === null) throw new Error('index.html has no #root');
createRoot(root).render(
  <StrictMode>
    <MantineProvider theme={theme} defaultColorScheme="auto" getStyleNonce={() => nonce}>
      <QueryClientProvider client={queries}>
        <ModalsProvider>
          <Notifications position="bottom-right" />
          <RouterProvider router={router} context={{ queries }} />
        </ModalsProvider>
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
