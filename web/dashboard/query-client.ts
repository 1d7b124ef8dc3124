import { MutationCache, QueryCache, QueryClient } from '@tanstack/react-query';
import { Fault } from '../api/client.ts';

/** Whether a call failed because the session is not signed in. */
export const isSignedOut = (error: Error | null) => error instanceof Fault && error.status === 401;

/** Data is fresh for five seconds; a call that the service rejected is not retried. */
export function createQueries({ onSignedOut }: { onSignedOut: () => void }): QueryClient {
  return new QueryClient({
    queryCache: new QueryCache({
      onError: (error) => {
        if (isSignedOut(error)) onSignedOut();
      },
    }),
    mutationCache: new MutationCache({
      onError: (error) => {
        // On sign-in and for codes, a 401 means a wrong value.
        const { code } = error as Fault;
        if (isSignedOut(error) && (code === 'not_signed_in' || code === 'unauthorized')) onSignedOut();
      },
    }),
    defaultOptions: {
      queries: {
        staleTime: 5_000,
        retry: (failures, error) =>
          failures < 2 && error instanceof Fault && (error.status === 0 || error.status >= 500),
      },
    },
  });
}
