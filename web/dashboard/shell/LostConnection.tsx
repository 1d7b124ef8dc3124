import { Text } from '@mantine/core';
import { notifyManager, onlineManager, type Query, useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useSyncExternalStore } from 'react';
import { Fault } from '../../api/client.ts';
import { whoIsSignedIn } from '../sign-in/queries.ts';

/** A bar while the service cannot be reached. All data are fetched again as soon as it responds. */
export function LostConnection() {
  const queries = useQueryClient();
  const cache = queries.getQueryCache();
  const isLost = useSyncExternalStore(
    (onChange) => {
      const stops = [cache.subscribe(notifyManager.batchCalls(onChange)), onlineManager.subscribe(onChange)];
      return () => {
        for (const stop of stops) stop();
      };
    },
    () => !onlineManager.isOnline() || cache.getAll().some(isUnreachable),
  );
  const { data: isBack } = useQuery({
    queryKey: ['is the service back'],
    queryFn: async () => (await whoIsSignedIn()) !== undefined,
    enabled: isLost,
    networkMode: 'always',
    refetchInterval: 3_000,
    gcTime: 0,
    staleTime: 0,
  });
  useEffect(() => {
    if (isLost && isBack === true) void queries.refetchQueries({ type: 'active' });
  }, [isLost, isBack, queries]);
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
