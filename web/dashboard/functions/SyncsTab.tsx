import { Anchor, Button, Group, Select, Stack, Text } from '@mantine/core';
import { IconPlugConnected } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FilterField } from '../../ui/FilterField.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import type { FunctionSearch } from '../search.ts';
import { type FunctionAt, type SyncCounts, syncsQuery } from './queries.ts';
import { SyncsTable } from './SyncsTable.tsx';
import { syncStates } from './words.ts';

const pageSize = 50;

/** Where a sync runs: each connection and variant, what it is at, and what can be done about it. */
export function SyncsTab({ environment, at }: { environment: string; at: FunctionAt }) {
  const search = useSearch({ from: '/$environment/functions/of/$integration/$type/$name' });
  const navigate = useNavigate({ from: '/$environment/functions/of/$integration/$type/$name' });
  const { is, connection, after } = search;
  const query = useQuery(
    syncsQuery(environment, {
      ...{ provider_config_key: at.integration, function: at.name, limit: pageSize },
      ...(is !== undefined && { state: is }),
      ...(connection !== undefined && { connection_id: connection }),
      ...(after !== undefined && { after }),
    }),
  );
  const change = (next: FunctionSearch) =>
    void navigate({ search: (former) => ({ ...former, after: undefined, ...next }), replace: true });
  const isFiltered = is !== undefined || connection !== undefined;
  return (
    <Stack>
      <Group gap="xs" role="search" aria-label="Filters">
        <FilterField
          flex="1 1 220px"
          maw={420}
          aria-label="Connection ID"
          placeholder="Connection ID"
          value={connection}
          onSettle={(typed) => change({ connection: typed })}
        />
        <Select
          flex="1 1 140px"
          maw={200}
          aria-label="State"
          placeholder="Every state"
          clearable
          data={Object.entries(syncStates).map(([value, { label }]) => ({ value, label }))}
          value={is ?? null}
          onChange={(state) => change({ is: (state ?? undefined) as FunctionSearch['is'] })}
        />
        <Text size="sm" c="dimmed" role="status">
          {query.data && countsOf(query.data.counts)}
        </Text>
      </Group>
      <Loaded query={query}>
        {({ syncs, next_after: next }) => (
          <Stack>
            {syncs.length > 0 ? (
              <SyncsTable environment={environment} syncs={syncs} />
            ) : isFiltered ? (
              <EmptyState
                icon={<IconPlugConnected size={26} />}
                title="Nothing fits"
                action={
                  <Button variant="default" onClick={() => change({ is: undefined, connection: undefined })}>
                    Show all
                  </Button>
                }
              >
                No connection of this sync matches these filters.
              </EmptyState>
            ) : (
              <EmptyState icon={<IconPlugConnected size={26} />} title="It runs for no connection yet">
                A sync that starts by itself runs as soon as a connection of {at.integration} is made. Another
                one is started on the page of its connection, or with <code>POST /sync/start</code>.{' '}
                <Anchor
                  inherit
                  underline="always"
                  renderRoot={(props) => (
                    <Link
                      to="/$environment/connections"
                      params={{ environment }}
                      search={{ integration: at.integration }}
                      {...props}
                    />
                  )}
                >
                  Its connections
                </Anchor>
              </EmptyState>
            )}
            {(next !== null || after !== undefined) && (
              <Group justify="space-between">
                <Button
                  variant="default"
                  disabled={after === undefined}
                  onClick={() => change({ after: undefined })}
                >
                  To the first
                </Button>
                {next !== null && (
                  <Button
                    variant="default"
                    renderRoot={(looks) => (
                      <Link
                        to="/$environment/functions/of/$integration/$type/$name"
                        params={{ environment, ...at }}
                        search={{ ...search, after: next }}
                        {...looks}
                      />
                    )}
                  >
                    More
                  </Button>
                )}
              </Group>
            )}
          </Stack>
        )}
      </Loaded>
    </Stack>
  );
}

/** "1,204 in all: 3 failing, 1 held". */
function countsOf(counts: SyncCounts): string {
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const parts = (['running', 'failing', 'held', 'paused'] as const)
    .filter((state) => counts[state] > 0)
    .map((state) => `${counts[state].toLocaleString()} ${state}`);
  return `${total.toLocaleString()} in all${parts.length > 0 ? `: ${parts.join(', ')}` : ''}`;
}
