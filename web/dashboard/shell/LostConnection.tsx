import { Text } from '@mantine/core';
import {
  notifyManager,
  onlineManager,
  type Query,
  useIsMutating,
  useQuery,
  useQueryClient,
} from '@tanstack/react-query';
import { useEffect, useRef, useSyncExternalStore } from 'react';
import { Fault } from '../../api/client.ts';
import { whoIsSignedIn } from '../sign-in/queries.ts';
import { signOutKey } from './sign-out.ts';

const probeMs = 3_000;

/**
 * A bar while the service does not respond. Queries that failed meanwhile are fetched again as soon as the service responds.
 * A single request that does not reach a service that responds is a fault of its part of the page.
 */
export function LostConnection() {
  const queries = useQueryClient();
  const cache = queries.getQueryCache();
  const isSigningOut = useIsMutating({ mutationKey: signOutKey }) > 0;
  const isUnavailable = useSyncExternalStore(
    (onChange) => {
      const stops = [cache.subscribe(notifyManager.batchCalls(onChange)), onlineManager.subscribe(onChange)];
      return () => {
        for (const stop of stops) stop();
      };
    },
    () => !onlineManager.isOnline() || cache.getAll().some(isUnreachable),
  );
  // A sign-out pauses all queries.
  const isLost = isUnavailable && !isSigningOut;
  const { data: responds } = useQuery({
    queryKey: ['does the service respond'],
    queryFn: async () => (await whoIsSignedIn()) !== undefined,
    enabled: ({ state }) => isLost || state.data === false,
    networkMode: 'always',
    refetchInterval: probeMs,
    staleTime: probeMs,
  });
  const wasDown = useRef(false);
  useEffect(() => {
    if (responds === false) wasDown.current = true;
    if (responds !== true || !wasDown.current) return;
    wasDown.current = false;
    // Other failed queries are still retried, or are fetched again at an interval of their own.
    const hasGivenUp = (query: Query) => isUnreachable(query) && query.state.fetchStatus === 'idle';
    void queries.refetchQueries({ predicate: hasGivenUp });
  }, [responds, queries]);
  return (
    <div role="status">
      {responds === false && (
        <Text className="lost" size="sm">
          The service does not respond. Your input is kept, and this page continues when the service is back.
        </Text>
      )}
    </div>
  );
}

/** Whether the latest attempt of a query in use got no response. */
function isUnreachable(query: Query): boolean {
  const { fetchFailureReason: error } = query.state;
  return error instanceof Fault && error.code === 'unreachable' && query.isActive();
}
