import { Badge, Button, Card, Group, Select, Skeleton, Stack, Text, TextInput } from '@mantine/core';
import { useDocumentVisibility } from '@mantine/hooks';
import { notifications } from '@mantine/notifications';
import { useQuery } from '@tanstack/react-query';
import { lazyRouteComponent, useNavigate, useSearch } from '@tanstack/react-router';
import { Suspense, useEffect, useState } from 'react';
import { Fault } from '../../api/client.ts';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { IconActivity, IconPlayerPause, IconPlayerPlay } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { localTime } from '../../ui/local-time.ts';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { useNow } from '../../ui/time.ts';
import { ExportMenu } from '../ExportMenu.tsx';
import { GuideLink } from '../links.tsx';
import { CursorPager, defined, type Filter, FilterBar, hasNoEntries } from '../lists.tsx';
import type { ActivitySearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { OperationDrawer } from './OperationDrawer.tsx';
import { OperationsTable } from './OperationsTable.tsx';
import { exportOperations, type Filters, operationsQuery, type Point, seriesQuery } from './queries.ts';
import { chartTimesOf, isoOfLocal, type RangeName, ranges, timesOf } from './time-range.ts';
import { newestFirst, type TailState, useTail } from './useTail.ts';

// The chart library is as large as the rest of the dashboard, so it is loaded separately from the list.
const ActivityCharts = lazyRouteComponent(() => import('./ActivityCharts.tsx'), 'ActivityCharts');

export function ActivityPage() {
  const environment = useEnvironment();
  const search = useSearch({ from: '/$environment/activity' });
  const navigate = useNavigate({ from: '/$environment/activity' });
  const nowMs = useNow();
  const given = filtersOf(search);
  const isWhole = !isFiltered(search) && search.cursor === undefined;
  // The query of an unfiltered list, which polls it while it is empty.
  const whole = useQuery({ ...operationsQuery(environment, { limit: pageSize }, false), enabled: isWhole });
  const isEmpty = isWhole && hasNoEntries(whole, ({ operations }) => operations);
  const change = (next: Partial<ActivitySearch>) =>
    void navigate({ search: (former) => ({ ...former, cursor: undefined, ...next }), replace: true });
  return (
    <Page
      title="Activity"
      about={
        <>
          Proxied calls, connects, refreshes, deliveries and changes of records. <GuideLink to="activity" />
        </>
      }
      actions={
        !isEmpty && (
          <ExportMenu
            name="activity"
            start={(format) => exportOperations(environment, { ...given, ...timesOf(search, nowMs) }, format)}
          />
        )
      }
    >
      <Card component="section" aria-label="Over time">
        <Charts search={search} filters={given} nowMs={nowMs} />
      </Card>
      {!isEmpty && <ActivityFilters search={search} onChange={change} />}
      <OperationsList
        key={JSON.stringify([environment, given, search.range, search.from, search.to])}
        search={search}
        filters={given}
        times={timesOf(search, nowMs)}
        onNewest={() => change({})}
        onNoPage={() => {
          notifications.show({
            id: 'no such page of the log',
            message: 'The address named a page that does not exist. This is the first page.',
          });
          change({});
        }}
      />
      <OperationDrawer
        id={search.operation}
        onClose={() =>
          void navigate({ search: (former) => ({ ...former, operation: undefined }), replace: true })
        }
      />
    </Page>
  );
}

function Charts({ search, filters, nowMs }: { search: ActivitySearch; filters: Filters; nowMs: number }) {
  const environment = useEnvironment();
  const { label, ...times } = chartTimesOf(search, nowMs);
  const query = useQuery(seriesQuery(environment, { ...filters, ...times }));
  const waiting = <Skeleton h={170} />;
  return (
    <>
      <Group justify="space-between" mb="xs" gap="xs">
        <Text fw={600}>{label}</Text>
        <Dimmed>{query.data !== undefined && countsOf(query.data)}</Dimmed>
      </Group>
      <Loaded query={query} loading={waiting}>
        {(points) => (
          <Suspense fallback={waiting}>
            <ActivityCharts points={points} stepS={times.step_s} />
            <Dimmed mt="xs">
              {points.some((point) => point.at_least)
                ? 'Too many operations match to count all of them. The numbers are lower bounds, from the newest operations of each step. A shorter time range gives better numbers. Durations are of the same operations.'
                : 'Counts are exact. Durations may differ by up to 12%.'}
            </Dimmed>
          </Suspense>
        )}
      </Loaded>
    </>
  );
}

/** "1,204 operations, 3 failed", or "at least 1,204 operations, at least 3 failed" without a count of 0. */
function countsOf(points: Point[]): string {
  const sum = (pick: (point: Point) => number) => points.reduce((total, point) => total + pick(point), 0);
  const count = sum((point) => point.count);
  const failed = sum((point) => point.failed);
  const min = points.some((point) => point.at_least) ? 'at least ' : '';
  const operations = count === 1 ? 'operation' : 'operations';
  const all = `${min}${count.toLocaleString()} ${operations}`;
  return min !== '' && failed === 0 ? all : `${all}, ${min}${failed.toLocaleString()} failed`;
}

const types = [
  'proxy',
  'connect',
  'refresh',
  'delivery',
  'records.save',
  'records.update',
  'records.delete',
  'records.prune',
  'records.retention',
  'run',
  'key_rotation',
] as const;

const filters: (Filter<ActivitySearch> | 'integration')[] = [
  { name: 'text', label: 'Search', placeholder: 'E-mail, path, connection, error or message' },
  'integration',
  { name: 'type', label: 'Kind', placeholder: 'Every kind', options: [...types] },
  {
    name: 'status',
    label: 'Outcome',
    placeholder: 'Every outcome',
    options: [
      { value: 'success', label: 'Succeeded' },
      { value: 'failed', label: 'Failed' },
    ],
  },
];

/** The filters of the list. All of them are in the address. */
function ActivityFilters({
  search,
  onChange,
}: {
  search: ActivitySearch;
  onChange: (next: Partial<ActivitySearch>) => void;
}) {
  const isBetween = search.from !== undefined || search.to !== undefined;
  const [isChoosing, setChoosing] = useState(isBetween);
  const isReversed =
    search.from !== undefined && search.to !== undefined && Date.parse(search.to) < Date.parse(search.from);
  const between = isChoosing || isBetween;
  return (
    <FilterBar
      search={search}
      // The text finds connections too. A link from a connection filters by its whole ID.
      filters={[
        search.connection !== undefined && { name: 'connection', label: 'Connection ID' },
        ...filters,
      ]}
      isEmpty={false}
      onChange={onChange}
    >
      <Select
        flex="1 1 140px"
        maw={240}
        aria-label="Time"
        placeholder="Any time"
        clearable
        data={[
          ...Object.entries(ranges).map(([value, { label }]) => ({ value, label })),
          { value: 'between', label: 'Between …' },
        ]}
        value={search.range ?? (between ? 'between' : null)}
        onChange={(value) => {
          setChoosing(value === 'between');
          const range = value === null || value === 'between' ? undefined : (value as RangeName);
          onChange({ range, from: undefined, to: undefined });
        }}
      />
      {between && search.range === undefined && (
        <>
          <TextInput
            type="datetime-local"
            aria-label="From"
            value={localTime(search.from)}
            onChange={({ currentTarget: { value } }) => onChange({ from: isoOfLocal(value) })}
          />
          <TextInput
            type="datetime-local"
            aria-label="To"
            value={localTime(search.to)}
            error={isReversed && 'The end is before the start.'}
            onChange={({ currentTarget: { value } }) => onChange({ to: isoOfLocal(value) })}
          />
        </>
      )}
    </FilterBar>
  );
}

/** The filters without the time, as the API takes them. */
function filtersOf(search: ActivitySearch): Omit<Filters, 'from' | 'to' | 'cursor' | 'limit'> {
  const { text, status, integration: integration_id, connection: connection_id } = search;
  const type = types.find((one) => one === search.type);
  return defined({ text, type, status, integration_id, connection_id });
}

function isFiltered(search: ActivitySearch): boolean {
  const { range, from, to } = search;
  return Object.keys({ ...filtersOf(search), ...defined({ range, from, to }) }).length > 0;
}

const pageSize = 50;
/** The polling interval while the stream is disconnected. */
const pollMs = 5_000;

/** A page of operations. The newest page is updated live until it is paused. */
function OperationsList({
  search,
  filters,
  times,
  onNewest,
  onNoPage,
}: {
  search: ActivitySearch;
  filters: Omit<Filters, 'from' | 'to' | 'cursor' | 'limit'>;
  times: { from?: string; to?: string };
  onNewest: () => void;
  /** Called if the cursor of the address is not valid, once or several times. */
  onNoPage: () => void;
}) {
  const environment = useEnvironment();
  const [isPaused, setPaused] = useState(false);
  // Older pages and ranges with an end are not updated.
  const mayGrow = search.cursor === undefined && search.to === undefined;
  const [isPolled, setPolled] = useState(false);
  const query = useQuery(
    operationsQuery(
      environment,
      { ...filters, ...times, limit: pageSize, ...defined({ cursor: search.cursor }) },
      mayGrow && isPolled && !isPaused ? pollMs : false,
    ),
  );
  const isNoPage =
    search.cursor !== undefined &&
    query.error instanceof Fault &&
    query.error.fields.some(({ path }) => path === 'cursor');
  useEffect(() => {
    if (isNoPage) onNoPage();
  }, [isNoPage, onNoPage]);
  const isSeen = useDocumentVisibility() === 'visible';
  // Not that of an older page, which is shown until the newest one is read.
  const newest = mayGrow && !query.isPlaceholderData ? query.data?.operations : undefined;
  const [wasRead, setRead] = useState(false);
  if (newest !== undefined && !wasRead) setRead(true);
  const tail = useTail({
    environment,
    filters,
    newestId: newest?.[0]?.id,
    // A browser has six connections to a service for all its tabs, so a hidden tab keeps no stream open.
    isOn: mayGrow && !isPaused && isSeen && wasRead,
  });
  const isAway = tail.state === 'connecting' || tail.state === 'waiting';
  const fetched = query.data?.operations ?? [];
  // A stream without a last ID starts when it opens. It misses operations that were logged shortly before and
  // stored after the list was read, so an empty list is polled.
  const isPollNeeded = isAway || fetched.length === 0;
  if (isPolled !== isPollNeeded) setPolled(isPollNeeded);
  const all = mayGrow ? newestFirst([...tail.operations, ...fetched]) : fetched;
  const shown = all.slice(0, pageSize);
  const next = all.length > pageSize ? (shown.at(-1)?.id ?? null) : (query.data?.next_cursor ?? null);
  return (
    <Stack gap="sm">
      <Group justify="space-between" gap="xs" mih={36}>
        {mayGrow ? (
          <Liveness state={tail.state} isPaused={isPaused} />
        ) : (
          <Dimmed>{search.cursor !== undefined ? 'Older operations' : 'Fixed time range'}</Dimmed>
        )}
        {mayGrow && (
          <Button
            size="compact-sm"
            variant="default"
            leftSection={isPaused ? <IconPlayerPlay size={14} /> : <IconPlayerPause size={14} />}
            onClick={() => setPaused(!isPaused)}
          >
            {isPaused ? 'Resume' : 'Pause'}
          </Button>
        )}
      </Group>
      <Loaded query={query}>
        {({ searched_until: searchedUntil }) => (
          <Stack>
            {shown.length > 0 ? (
              <OperationsTable operations={shown} search={search} />
            ) : (
              <EmptyState
                icon={<IconActivity size={26} />}
                title={next !== null ? 'No match so far' : isFiltered(search) ? 'No match' : 'No entries yet'}
              >
                {next !== null ? (
                  <>
                    No match back to <RelativeTime at={searchedUntil} />. Older entries are not searched yet.
                  </>
                ) : isFiltered(search) ? (
                  'No operation matches these filters.'
                ) : (
                  <>
                    Calls of your application through the proxy appear here. <GuideLink to="playground" />
                  </>
                )}
              </EmptyState>
            )}
            <CursorPager
              onFirst={search.cursor === undefined ? undefined : onNewest}
              next={next === null ? undefined : { cursor: next }}
            />
          </Stack>
        )}
      </Loaded>
    </Stack>
  );
}

const tailLabels: Record<TailState, { label: string; color: string }> = {
  off: { label: 'Not live', color: 'gray' },
  connecting: { label: 'Connecting', color: 'gray' },
  live: { label: 'Live', color: 'teal' },
  waiting: { label: 'Reconnecting', color: 'yellow' },
};

function Liveness({ state, isPaused }: { state: TailState; isPaused: boolean }) {
  const { label, color } = isPaused ? { label: 'Paused', color: 'gray' } : tailLabels[state];
  return (
    <Badge color={color} variant="dot" size="lg" role="status" aria-label={`Live list: ${label}`}>
      {label}
    </Badge>
  );
}
