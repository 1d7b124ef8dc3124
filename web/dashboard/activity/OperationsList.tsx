import { Badge, Button, Group, Stack, Text } from '@mantine/core';
import { useDocumentVisibility } from '@mantine/hooks';
import { IconActivity, IconPlayerPause, IconPlayerPlay } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { NewestFirst } from '../../ui/NewestFirst.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import type { ActivitySearch } from '../search.ts';
import { OperationsTable } from './OperationsTable.tsx';
import { type Filters, operationsQuery } from './queries.ts';
import { newestFirst, type TailState, useTail } from './useTail.ts';

const pageSize = 50;
/** While the stream is away. */
const pollMs = 5_000;

/** A page of operations; the newest one grows by itself until it is paused. */
export function OperationsList({
  environment,
  search,
  filters,
  times,
  onNewest,
}: {
  environment: string;
  search: ActivitySearch;
  filters: Omit<Filters, 'from' | 'to' | 'cursor' | 'limit'>;
  times: { from?: string; to?: string };
  onNewest: () => void;
}) {
  const [isPaused, setPaused] = useState(false);
  // Older pages, and times that have an end, do not grow.
  const mayGrow = search.cursor === undefined && search.to === undefined;
  const [isPolled, setPolled] = useState(false);
  const query = useQuery(
    operationsQuery(
      environment,
      {
        ...filters,
        ...times,
        limit: pageSize,
        ...(search.cursor !== undefined && { cursor: search.cursor }),
      },
      mayGrow && isPolled && !isPaused ? pollMs : false,
    ),
  );
  const isSeen = useDocumentVisibility() === 'visible';
  const tail = useTail({
    environment,
    filters,
    newestId: query.data?.operations[0]?.id,
    // A browser has six connections to a service for all its tabs: one that nobody looks at holds none.
    isOn: mayGrow && !isPaused && isSeen && query.data !== undefined,
  });
  const isAway = tail.state === 'connecting' || tail.state === 'waiting';
  const fetched = query.data?.operations ?? [];
  // A stream that continues after no operation begins when it opens: it lacks operations that were logged just before, and
  // stored after the list was read.
  const isPollNeeded = isAway || (fetched.length === 0 && tail.operations.length === 0);
  if (isPolled !== isPollNeeded) setPolled(isPollNeeded);
  const all = mayGrow ? newestFirst([...tail.operations, ...fetched]) : fetched;
  const shown = all.slice(0, pageSize);
  const next = all.length > pageSize ? (shown.at(-1)?.id ?? null) : (query.data?.next_cursor ?? null);
  const isFiltered =
    Object.keys(filters).length > 0 || search.range !== undefined || search.from !== undefined;
  return (
    <Stack gap="sm">
      <Group justify="space-between" gap="xs" mih={36}>
        {mayGrow ? (
          <Liveness state={tail.state} isPaused={isPaused} />
        ) : (
          <Text size="sm" c="dimmed">
            {search.cursor !== undefined ? 'Older operations' : 'A time that has an end'}
          </Text>
        )}
        {mayGrow && (
          <Button
            size="compact-sm"
            variant="default"
            leftSection={isPaused ? <IconPlayerPlay size={14} /> : <IconPlayerPause size={14} />}
            onClick={() => setPaused(!isPaused)}
          >
            {isPaused ? 'Go on' : 'Pause'}
          </Button>
        )}
      </Group>
      <Loaded query={query}>
        {({ searched_until: searchedUntil }) => (
          <Stack>
            {shown.length > 0 ? (
              <OperationsTable operations={shown} environment={environment} search={search} />
            ) : (
              <EmptyState
                icon={<IconActivity size={26} />}
                title={next !== null ? 'Nothing yet' : isFiltered ? 'Nothing fits' : 'All quiet'}
              >
                {next !== null ? (
                  <>
                    Nothing fits back to <RelativeTime at={searchedUntil} />. Older entries are not looked
                    through yet.
                  </>
                ) : isFiltered ? (
                  'No operation matches these filters.'
                ) : (
                  'As soon as your application calls a provider through the proxy, it shows up here.'
                )}
              </EmptyState>
            )}
            <NewestFirst
              onNewest={search.cursor === undefined ? undefined : onNewest}
              older={
                next === null
                  ? undefined
                  : (looks) => (
                      <Link
                        to="/$environment/activity"
                        params={{ environment }}
                        search={{ ...search, cursor: next }}
                        {...looks}
                      />
                    )
              }
            />
          </Stack>
        )}
      </Loaded>
    </Stack>
  );
}

const told: Record<TailState, { label: string; color: string }> = {
  off: { label: 'Not live', color: 'gray' },
  connecting: { label: 'Connecting', color: 'gray' },
  live: { label: 'Live', color: 'teal' },
  waiting: { label: 'Reconnecting', color: 'yellow' },
};

function Liveness({ state, isPaused }: { state: TailState; isPaused: boolean }) {
  const { label, color } = isPaused ? { label: 'Paused', color: 'gray' } : told[state];
  return (
    <Badge color={color} variant="dot" size="lg" role="status" aria-label={`Live list: ${label}`}>
      {label}
    </Badge>
  );
}
