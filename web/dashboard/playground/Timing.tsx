import { Anchor, Skeleton, Stack, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { duration } from '../activity/OperationsTable.tsx';
import { Phases } from '../activity/Phases.tsx';
import { entryQuery, type ProxiedAnswer } from './queries.ts';

/** Where the time went: in the service, as its log has it, and as the browser saw it. */
export function Timing({ answer }: { answer: ProxiedAnswer }) {
  const { headMs, totalMs, caller, logBefore } = answer;
  const { data: entry, isPending, isFetching } = useQuery(entryQuery(answer));
  const isAwaited = logBefore !== undefined && entry == null && (isPending || isFetching);
  return (
    <Stack gap="md">
      <Text size="sm">
        The answer began after <b>{duration(headMs)}</b> and ended after <b>{duration(totalMs)}</b>, on its
        way through the service and to this browser.
      </Text>
      {entry != null ? (
        <>
          <Phases operation={entry} />
          <Text size="sm">
            {entry.requests === 1 ? 'One request' : `${entry.requests} requests`} to the provider
            {entry.retries !== null && entry.retries > 0 && `, ${entry.retries} of them retries`}.{' '}
            <Anchor
              size="sm"
              renderRoot={(props) => (
                <Link
                  to="/$environment/activity"
                  params={{ environment: caller.environment }}
                  search={{ operation: entry.id }}
                  {...props}
                />
              )}
            >
              Its entry in the activity log
            </Anchor>
          </Text>
        </>
      ) : isAwaited ? (
        <Skeleton h={52} role="status" aria-label="Loading" />
      ) : (
        <Text size="sm" c="dimmed">
          The activity log has no entry of this call, so its phases are not known.
        </Text>
      )}
    </Stack>
  );
}
