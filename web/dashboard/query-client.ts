import { MutationCache, QueryCache, QueryClient } from '@tanstack/react-query';
import { Fault } from '../api/client.ts';

/** Whether a call was refused because nobody is signed in by its session. */
export const isSignedOut = (error: Error | null) => error instanceof Fault && error.status === 401;

/** What is fetched is fresh for five seconds; what the service refuses is not asked again. */
export function createQueries({ onSignedOut }: { onSignedOut: () => void }): QueryClient {
  return new QueryClient({
    queryCache: new QueryCache({
      onError: (error) => {
        if (isSignedOut(error)) onSignedOut();
      },
    }),
    mutationCache: new MutationCache({
      onError: (error) => {
        // Where somebody signs in or proves a code, a 401 says that it was not right.
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
