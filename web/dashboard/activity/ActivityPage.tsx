import { Card, Group, Skeleton, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { lazyRouteComponent, useNavigate, useSearch } from '@tanstack/react-router';
import { Suspense } from 'react';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { useNow } from '../../ui/time.ts';
import type { ActivitySearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { FilterBar, filtersOf } from './FilterBar.tsx';
import { OperationDrawer } from './OperationDrawer.tsx';
import { OperationsList } from './OperationsList.tsx';
import { type Filters, type Point, seriesQuery } from './queries.ts';
import { chartTimesOf, timesOf } from './time-range.ts';

// The chart library is as big as everything else together; the list does not wait for it.
const ActivityCharts = lazyRouteComponent(() => import('./ActivityCharts.tsx'), 'ActivityCharts');

export function ActivityPage() {
  const environment = useEnvironment();
  const search = useSearch({ from: '/$environment/activity' });
  const navigate = useNavigate({ from: '/$environment/activity' });
  const nowMs = useNow();
  const filters = filtersOf(search);
  const change = (next: Partial<ActivitySearch>) =>
    void navigate({ search: (former) => ({ ...former, cursor: undefined, ...next }), replace: true });
  return (
    <Page
      title="Activity"
      about="What the service has done: proxied calls, connects, refreshes, deliveries and changes of records."
    >
      <Card component="section" aria-label="Over time">
        <Charts environment={environment} search={search} filters={filters} nowMs={nowMs} />
      </Card>
      <FilterBar search={search} onChange={change} />
      <OperationsList
        key={JSON.stringify([environment, filters, search.range, search.from, search.to])}
        environment={environment}
        search={search}
        filters={filters}
        times={timesOf(search, nowMs)}
        onNewest={() => change({})}
      />
      <OperationDrawer
        environment={environment}
        id={search.operation}
        onClose={() => void navigate({ search: (former) => ({ ...former, operation: undefined }) })}
      />
    </Page>
  );
}

function Charts({
  environment,
  search,
  filters,
  nowMs,
}: {
  environment: string;
  search: ActivitySearch;
  filters: Filters;
  nowMs: number;
}) {
  const { label, ...times } = chartTimesOf(search, nowMs);
  const query = useQuery(seriesQuery(environment, { ...filters, ...times }));
  const waiting = <Skeleton h={170} />;
  return (
    <>
      <Group justify="space-between" mb="xs" gap="xs">
        <Text fw={600}>{label}</Text>
        <Text size="sm" c="dimmed">
          {query.data !== undefined && countsOf(query.data)}
        </Text>
      </Group>
      <Loaded query={query} loading={waiting}>
        {(points) => (
          <Suspense fallback={waiting}>
            <ActivityCharts points={points} stepS={times.step_s} />
          </Suspense>
        )}
      </Loaded>
    </>
  );
}

/** "1,204 operations, 3 failed", or "at least 1,204 operations, at least 3 failed", which says nothing where it is 0. */
function countsOf(points: Point[]): string {
  const sum = (pick: (point: Point) => number) => points.reduce((total, point) => total + pick(point), 0);
  const count = sum((point) => point.count);
  const failed = sum((point) => point.failed);
  const min = points.some((point) => point.at_least) ? 'at least ' : '';
  const operations = count === 1 ? 'operation' : 'operations';
  const all = `${min}${count.toLocaleString()} ${operations}`;
  return min !== '' && failed === 0 ? all : `${all}, ${min}${failed.toLocaleString()} failed`;
}
