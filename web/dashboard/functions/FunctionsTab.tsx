import { Button, Card, Center, Group, Select, Stack, ThemeIcon, Title } from '@mantine/core';
import { IconFunction, IconPower, IconSearch } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { Fault } from '../../api/client.ts';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FilterField } from '../../ui/FilterField.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { NumberedPages } from '../../ui/NumberedPages.tsx';
import { IntegrationSelect } from '../integrations/IntegrationSelect.tsx';
import { integrationsQuery } from '../integrations/queries.ts';
import type { FunctionsSearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { DeployHelp } from './DeployHelp.tsx';
import { FunctionsTable } from './FunctionsTable.tsx';
import { functionsQuery } from './queries.ts';
import { types } from './words.ts';

const pageSize = 50;

/** Every function of the environment, narrowed by what stands in the address. */
export function FunctionsTab() {
  const environment = useEnvironment();
  const search = useSearch({ from: '/$environment/functions' });
  const navigate = useNavigate({ from: '/$environment/functions' });
  const page = search.page ?? 0;
  const functions = useQuery(
    functionsQuery(environment, {
      ...(search.search !== undefined && { search: search.search }),
      ...(search.integration !== undefined && { provider_config_key: search.integration }),
      ...(search.type !== undefined && { type: search.type }),
      ...(search.enabled !== undefined && { enabled: search.enabled === 'on' ? 'true' : 'false' }),
      ...{ page, limit: pageSize },
    }),
  );
  const change = (next: FunctionsSearch) =>
    void navigate({ search: (former) => ({ ...former, page: undefined, ...next }), replace: true });
  const { error } = functions;
  if (functions.data === undefined && error instanceof Fault && error.code === 'functions_off') {
    return (
      <EmptyState icon={<IconPower size={26} />} title="Functions are turned off">
        The service runs with <code>TRELLIS_FUNCTIONS=off</code>. Start it without, and what was deployed runs
        again.
      </EmptyState>
    );
  }
  const isFiltered =
    search.search !== undefined ||
    search.integration !== undefined ||
    search.type !== undefined ||
    search.enabled !== undefined;
  const isEmpty = functions.data?.pagination.total === 0 && !isFiltered;
  return (
    <Stack>
      {!isEmpty && <Filters search={search} onChange={change} />}
      <Loaded query={functions}>
        {({ data, pagination: { total } }) =>
          isEmpty ? (
            <NoFunctions environment={environment} />
          ) : data.length === 0 ? (
            <EmptyState
              icon={<IconFunction size={26} />}
              title="Nothing fits"
              action={
                <Button variant="default" onClick={() => void navigate({ search: {} })}>
                  Show all
                </Button>
              }
            >
              No function matches these filters.
            </EmptyState>
          ) : (
            <Stack>
              <FunctionsTable functions={data} environment={environment} />
              <NumberedPages
                page={page}
                size={pageSize}
                shown={data.length}
                total={total}
                onPage={(next) => change({ page: next || undefined })}
              />
            </Stack>
          )
        }
      </Loaded>
    </Stack>
  );
}

function Filters({
  search,
  onChange,
}: {
  search: FunctionsSearch;
  onChange: (next: FunctionsSearch) => void;
}) {
  const { data: integrations = [] } = useQuery(integrationsQuery(useEnvironment()));
  return (
    <Group gap="xs" role="search" aria-label="Filters">
      <FilterField
        flex="1 1 220px"
        maw={420}
        aria-label="Search functions"
        placeholder="Name"
        leftSection={<IconSearch size={16} />}
        value={search.search}
        onSettle={(typed) => onChange({ search: typed })}
      />
      <IntegrationSelect
        flex="1 1 150px"
        maw={220}
        aria-label="Integration"
        placeholder="Every integration"
        clearable
        integrations={integrations}
        value={search.integration ?? null}
        onChange={(integration) => onChange({ integration: integration ?? undefined })}
      />
      <Select
        flex="1 1 130px"
        maw={180}
        aria-label="Kind"
        placeholder="Every kind"
        clearable
        data={Object.entries(types).map(([value, { label }]) => ({ value, label }))}
        value={search.type ?? null}
        onChange={(type) => onChange({ type: (type ?? undefined) as FunctionsSearch['type'] })}
      />
      <Select
        flex="1 1 110px"
        maw={160}
        aria-label="On or off"
        placeholder="On or off"
        clearable
        data={[
          { value: 'on', label: 'On' },
          { value: 'off', label: 'Off' },
        ]}
        value={search.enabled ?? null}
        onChange={(enabled) => onChange({ enabled: (enabled ?? undefined) as FunctionsSearch['enabled'] })}
      />
    </Group>
  );
}

function NoFunctions({ environment }: { environment: string }) {
  return (
    <Center py="md">
      <Card maw={640} w="100%">
        <Group mb="sm">
          <ThemeIcon size={44} radius="xl" variant="light">
            <IconFunction size={24} />
          </ThemeIcon>
          <Title order={2}>No function is deployed yet</Title>
        </Group>
        <DeployHelp environment={environment} />
      </Card>
    </Center>
  );
}
