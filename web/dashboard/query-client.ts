import { QueryCache, QueryClient } from '@tanstack/react-query';
import { Fault } from '../api/client.ts';

/** What is fetched is fresh for five seconds; what the service refuses is not asked again. */
export function createQueries({ onSignedOut }: { onSignedOut: () => void }): QueryClient {
  return new QueryClient({
    queryCache: new QueryCache({
      onError: (error) => {
        if (error instanceof Fault && error.status === 401) onSignedOut();
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
