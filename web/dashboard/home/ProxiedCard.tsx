import { Card, Group, Skeleton, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { lazyRouteComponent } from '@tanstack/react-router';
import { type ReactNode, Suspense } from 'react';
import { Loaded } from '../../ui/Loaded.tsx';
import { counted } from '../../ui/size.ts';
import { useNow } from '../../ui/time.ts';
import { duration } from '../activity/OperationsTable.tsx';
import { AnchorLink } from '../links.tsx';
import type { ActivitySearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { type Proxied, proxiedQuery } from './queries.ts';

const ActivityCharts = lazyRouteComponent(() => import('../activity/ActivityCharts.tsx'), 'ActivityCharts');

const hourMs = 3_600_000;
const spans = { '24 hours': { count: 24, stepMs: hourMs }, '14 days': { count: 14, stepMs: 24 * hourMs } };
const percent = new Intl.NumberFormat(undefined, { style: 'percent', maximumFractionDigits: 1 });

/** Count, failures and durations of the latest proxied calls, in whole steps up to now: of one integration or of all. */
export function ProxiedCard({
  title,
  span,
  integration,
  children,
}: {
  title: string;
  span: keyof typeof spans;
  integration?: string;
  /** Beside the title. */
  children?: ReactNode;
}) {
  const environment = useEnvironment();
  const { count, stepMs } = spans[span];
  const from = new Date((Math.floor(useNow() / stepMs) - count + 1) * stepMs).toISOString();
  const stepS = stepMs / 1000;
  const query = useQuery(proxiedQuery(environment, { integration, from, stepS }));
  const waiting = <Skeleton h={170} />;
  return (
    <Card component="section" aria-label={title}>
      <Group justify="space-between" mb="xs" gap="xs" mih={26}>
        <Group>
          <Title order={2}>{title}</Title>
          {children}
        </Group>
        {query.data && <Totals of={query.data} search={{ type: 'proxy', from, integration }} />}
      </Group>
      <Loaded query={query} loading={waiting}>
        {({ points }) => (
          <Suspense fallback={waiting}>
            <ActivityCharts points={points} stepS={stepS} />
          </Suspense>
        )}
      </Loaded>
    </Card>
  );
}

function Totals({ of: { count, failed, p50, p95 }, search }: { of: Proxied; search: ActivitySearch }) {
  const environment = useEnvironment();
  const at = { to: '/$environment/activity', params: { environment } } as const;
  return (
    <Group gap="md">
      <AnchorLink size="sm" {...at} search={search}>
        {counted(count, 'call')}
      </AnchorLink>
      <AnchorLink
        size="sm"
        c={failed > 0 ? 'var(--mantine-color-error)' : 'dimmed'}
        {...at}
        search={{ ...search, status: 'failed' }}
      >
        {failed.toLocaleString()} failed
        {count > 0 && failed > 0 && ` (${percent.format(failed / count)})`}
      </AnchorLink>
      {p50 !== null && p95 !== null && (
        <AnchorLink size="sm" c="dimmed" {...at} search={search}>
          p50 {duration(p50)}, p95 {duration(p95)}
        </AnchorLink>
      )}
    </Group>
  );
}
