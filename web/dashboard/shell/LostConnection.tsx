import { Text } from '@mantine/core';
import {
  notifyManager,
  onlineManager,
  type Query,
  useIsMutating,
  useQuery,
  useQueryClient,
} from '@tanstack/react-query';
import { useEffect, useSyncExternalStore } from 'react';
import { Fault } from '../../api/client.ts';
import { whoIsSignedIn } from '../sign-in/queries.ts';
import { signOutKey } from './sign-out.ts';

/** The time between two probes, and the shortest between two refetches of data that only some requests cannot reach. */
const probeMs = 3_000;

/** A bar while the service cannot be reached. What could not be fetched is fetched again as soon as it responds. */
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
  const { dataUpdatedAt: respondedAt } = useQuery({
    queryKey: ['is the service back'],
    queryFn: async () => {
      if ((await whoIsSignedIn()) === undefined) throw new Error('The service does not respond.');
      return true;
    },
    enabled: isLost,
    networkMode: 'always',
    refetchInterval: probeMs,
    staleTime: probeMs,
    retry: false,
  });
  useEffect(() => {
    // Others are still retried, or fetched again at an interval of their own.
    const hasGivenUp = (query: Query) => isUnreachable(query) && query.state.fetchStatus === 'idle';
    if (respondedAt > 0) void queries.refetchQueries({ predicate: hasGivenUp });
  }, [respondedAt, queries]);
  return (
    <div role="status">
      {isLost && (
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
