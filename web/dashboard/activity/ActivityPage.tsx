import { Badge, Button, Card, Group, Select, Skeleton, Stack, TextInput } from '@mantine/core';
import { useDebouncedCallback } from '@mantine/hooks';
import { IconActivity, IconSearch } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { lazy, Suspense, useState } from 'react';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { useNow } from '../../ui/time.ts';
import { integrationsQuery } from '../integrations/queries.ts';
import type { ActivitySearch } from '../router.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { OperationDrawer } from './OperationDrawer.tsx';
import { OperationsTable } from './OperationsTable.tsx';
import { type Filters as ApiFilters, operationsQuery, statsQuery } from './queries.ts';

// The chart library is as big as everything else together; the list does not wait for it.
const ActivityChart = lazy(() =>
  import('./ActivityChart.tsx').then((module) => ({ default: module.ActivityChart })),
);

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
  'key_rotation',
] as const;

export function ActivityPage() {
  const environment = useEnvironment();
  const search = useSearch({ from: '/$environment/activity' });
  const navigate = useNavigate({ from: '/$environment/activity' });
  const filters = filtersOf(search);
  const operations = useQuery(
    operationsQuery(environment, {
      ...filters,
      limit: 50,
      ...(search.cursor !== undefined && { cursor: search.cursor }),
    }),
  );
  const change = (next: Partial<ActivitySearch>) =>
    void navigate({ search: (former) => ({ ...former, cursor: undefined, ...next }), replace: true });
  const isFiltered = Object.keys(filters).length > 0;
  return (
    <Page
      title="Activity"
      about="What the service has done: proxied calls, connects, refreshes, deliveries and changes of records."
      actions={
        search.cursor === undefined && (
          <Badge color="teal" variant="dot" size="lg">
            Live
          </Badge>
        )
      }
    >
      <Card>
        <Chart environment={environment} filters={filters} />
      </Card>
      <FilterBar key={search.connection ?? ''} search={search} onChange={change} />
      <Loaded query={operations}>
        {({ operations: found, next_cursor: next }) =>
          found.length === 0 ? (
            <EmptyState icon={<IconActivity size={26} />} title={isFiltered ? 'Nothing fits' : 'All quiet'}>
              {isFiltered
                ? 'No operation matches these filters.'
                : 'As soon as your application calls a provider through the proxy, it shows up here.'}
            </EmptyState>
          ) : (
            <Stack>
              <OperationsTable operations={found} environment={environment} search={search} />
              <Group justify="space-between">
                {search.cursor !== undefined ? (
                  <Button variant="default" onClick={() => change({})}>
                    To the newest
                  </Button>
                ) : (
                  <span />
                )}
                {next !== null && (
                  <Button
                    variant="default"
                    renderRoot={(props) => (
                      <Link
                        to="/$environment/activity"
                        params={{ environment }}
                        search={{ ...search, cursor: next }}
                        {...props}
                      />
                    )}
                  >
                    Older
                  </Button>
                )}
              </Group>
            </Stack>
          )
        }
      </Loaded>
      <OperationDrawer
        environment={environment}
        id={search.operation}
        onClose={() => void navigate({ search: (former) => ({ ...former, operation: undefined }) })}
      />
    </Page>
  );
}

function Chart({ environment, filters }: { environment: string; filters: ApiFilters }) {
  const nowMs = useNow();
  const from = new Date(Math.floor(nowMs / 3_600_000) * 3_600_000 - 23 * 3_600_000).toISOString();
  const stats = useQuery(statsQuery(environment, { ...filters, from } as typeof filters));
  const waiting = <Skeleton h={160} />;
  return (
    <Loaded query={stats} loading={waiting}>
      {({ hours }) => (
        <Suspense fallback={waiting}>
          <ActivityChart hours={hours} nowMs={nowMs} />
        </Suspense>
      )}
    </Loaded>
  );
}

function FilterBar({
  search,
  onChange,
}: {
  search: ActivitySearch;
  onChange: (next: Partial<ActivitySearch>) => void;
}) {
  const environment = useEnvironment();
  const { data: integrations = [] } = useQuery(integrationsQuery(environment));
  const [text, setText] = useState(search.text ?? '');
  const [connection, setConnection] = useState(search.connection ?? '');
  const settle = useDebouncedCallback((next: Partial<ActivitySearch>) => onChange(next), 250);
  return (
    <Group gap="xs">
      <TextInput
        flex="1 1 200px"
        aria-label="Search"
        placeholder="Path or error code"
        leftSection={<IconSearch size={16} />}
        value={text}
        onChange={({ currentTarget: { value } }) => {
          setText(value);
          settle({ text: value.trim() || undefined });
        }}
      />
      <TextInput
        flex="1 1 160px"
        aria-label="Connection ID"
        placeholder="Connection ID"
        value={connection}
        onChange={({ currentTarget: { value } }) => {
          setConnection(value);
          settle({ connection: value.trim() || undefined });
        }}
      />
      <Select
        flex="1 1 140px"
        aria-label="Integration"
        placeholder="Every integration"
        clearable
        data={integrations.map(({ unique_key, display_name }) => ({
          value: unique_key,
          label: display_name,
        }))}
        value={search.integration ?? null}
        onChange={(value) => onChange({ integration: value ?? undefined })}
      />
      <Select
        flex="1 1 130px"
        aria-label="Kind"
        placeholder="Every kind"
        clearable
        data={[...types]}
        value={search.type ?? null}
        onChange={(value) => onChange({ type: value ?? undefined })}
      />
      <Select
        flex="1 1 130px"
        aria-label="Outcome"
        placeholder="Every outcome"
        clearable
        data={[
          { value: 'success', label: 'Succeeded' },
          { value: 'failed', label: 'Failed' },
        ]}
        value={search.status ?? null}
        onChange={(value) => onChange({ status: (value ?? undefined) as ActivitySearch['status'] })}
      />
    </Group>
  );
}

function filtersOf(search: ActivitySearch): ApiFilters {
  const type = types.find((one) => one === search.type);
  return {
    ...(search.text !== undefined && { text: search.text }),
    ...(type !== undefined && { type }),
    ...(search.status !== undefined && { status: search.status }),
    ...(search.integration !== undefined && { provider_config_key: search.integration }),
    ...(search.connection !== undefined && { connection_id: search.connection }),
  };
}
