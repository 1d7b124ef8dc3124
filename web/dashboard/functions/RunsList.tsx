import { Select, SimpleGrid, Stack } from '@mantine/core';
import { IconPlayerPlay } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FilterField } from '../../ui/FilterField.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { NewestFirst } from '../../ui/NewestFirst.tsx';
import { IntegrationSelect } from '../integrations/IntegrationSelect.tsx';
import { integrationsQuery } from '../integrations/queries.ts';
import type { RunsSearch } from '../search.ts';
import { type FunctionAt, type FunctionType, runsQuery } from './queries.ts';
import { RunsTable } from './RunsTable.tsx';
import { runKinds, runStates } from './words.ts';

const pageSize = 50;

/** Runs, newest first: of one function, or of all. What narrows them stands in the address. */
export function RunsList({
  environment,
  of,
  search,
  onChange,
  older,
}: {
  environment: string;
  of: FunctionAt | undefined;
  search: RunsSearch;
  onChange: (next: RunsSearch) => void;
  /** The link to the page behind a cursor, given the looks of a button. */
  older: (cursor: string, looks: object) => ReactNode;
}) {
  const integration = of?.integration ?? search.integration;
  const name = of?.name ?? search.function;
  const query = useQuery(
    runsQuery(environment, {
      ...(integration !== undefined && { provider_config_key: integration }),
      ...(name !== undefined && { function: name }),
      ...(of !== undefined && { type: of.type }),
      ...(search.kind !== undefined && { kind: search.kind }),
      ...(search.state !== undefined && { state: search.state }),
      ...(search.connection !== undefined && { connection_id: search.connection }),
      ...(search.cursor !== undefined && { cursor: search.cursor }),
      limit: pageSize,
    }),
  );
  const isFiltered =
    search.state !== undefined ||
    search.kind !== undefined ||
    search.connection !== undefined ||
    (of === undefined && (integration !== undefined || name !== undefined));
  return (
    <Stack>
      <Filters environment={environment} of={of} search={search} onChange={onChange} />
      <Loaded query={query}>
        {({ runs, next_cursor: next }) => (
          <Stack>
            {runs.length === 0 ? (
              <EmptyState
                icon={<IconPlayerPlay size={26} />}
                title={isFiltered ? 'Nothing fits' : 'Nothing has run yet'}
              >
                {isFiltered ? 'No run matches these filters.' : firstRunOf(of?.type)}
              </EmptyState>
            ) : (
              <RunsTable runs={runs} environment={environment} isOfOne={of !== undefined} />
            )}
            <NewestFirst
              onNewest={search.cursor === undefined ? undefined : () => onChange({ cursor: undefined })}
              older={next === null ? undefined : (looks) => older(next, looks)}
            />
          </Stack>
        )}
      </Loaded>
    </Stack>
  );
}

function firstRunOf(type: FunctionType | undefined): string {
  if (type === 'action')
    return 'An action runs when it is called: by your application, by an agent, or by hand.';
  if (type === 'on-event') return 'It runs as soon as its event happens to a connection of the integration.';
  if (type === 'sync') return 'A sync runs by its frequency, for each connection that it is started for.';
  return 'As soon as a function runs, its runs are listed here.';
}

function Filters({
  environment,
  of,
  search,
  onChange,
}: {
  environment: string;
  of: FunctionAt | undefined;
  search: RunsSearch;
  onChange: (next: RunsSearch) => void;
}) {
  const { data: integrations = [] } = useQuery({
    ...integrationsQuery(environment),
    enabled: of === undefined,
  });
  const kinds = Object.entries(runKinds).filter(
    ([kind]) => of === undefined || (of.type === 'sync' && (kind === 'sync' || kind === 'webhook')),
  );
  return (
    <SimpleGrid
      cols={of === undefined ? { base: 2, sm: 3, lg: 5 } : { base: 2, sm: 3 }}
      spacing="xs"
      verticalSpacing="xs"
      role="search"
      aria-label="Filters"
    >
      {of === undefined && (
        <>
          <FilterField
            aria-label="Function"
            placeholder="Function"
            value={search.function}
            onSettle={(name) => onChange({ function: name })}
          />
          <IntegrationSelect
            aria-label="Integration"
            placeholder="Every integration"
            clearable
            integrations={integrations}
            value={search.integration ?? null}
            onChange={(integration) => onChange({ integration: integration ?? undefined })}
          />
        </>
      )}
      <FilterField
        aria-label="Connection ID"
        placeholder="Connection ID"
        value={search.connection}
        onSettle={(connection) => onChange({ connection })}
      />
      <Select
        aria-label="State"
        placeholder="Every state"
        clearable
        data={Object.entries(runStates).map(([value, { label }]) => ({ value, label }))}
        value={search.state ?? null}
        onChange={(state) => onChange({ state: (state ?? undefined) as RunsSearch['state'] })}
      />
      {kinds.length > 0 && (
        <Select
          aria-label="Kind of run"
          placeholder="Every kind"
          clearable
          data={kinds.map(([value, label]) => ({ value, label }))}
          value={search.kind ?? null}
          onChange={(kind) => onChange({ kind: (kind ?? undefined) as RunsSearch['kind'] })}
        />
      )}
    </SimpleGrid>
  );
}
