import { notifications } from '@mantine/notifications';
import { type QueryKey, useMutation, useQueryClient } from '@tanstack/react-query';

/**
 * A call that changes something. Afterwards, the queries whose keys begin with one of `stale` are fetched again, then
 * `after` runs. `done` and `failed` are shown as notifications; without `failed` the page shows the error.
 */
export function useChange<T, V = void>(
  change: (given: V) => Promise<T>,
  {
    stale = [],
    done,
    failed,
    after,
  }: {
    stale?: QueryKey[];
    done?: string | ((answer: T, given: V) => string);
    failed?: string;
    after?: (answer: T, given: V) => unknown;
  } = {},
) {
  const queries = useQueryClient();
  const refetch = () => Promise.all(stale.map((queryKey) => queries.invalidateQueries({ queryKey })));
  return useMutation({
    mutationFn: change,
    meta: { isShown: failed !== undefined },
    onSuccess: async (answer, given) => {
      const message = typeof done === 'function' ? done(answer, given) : done;
      if (message !== undefined) notifications.show({ message, color: 'green' });
      await refetch();
      await after?.(answer, given);
    },
    onError: ({ message }) => {
      if (failed !== undefined) notifications.show({ title: failed, message, color: 'red' });
      return refetch();
    },
  });
}
