import { Select, SimpleGrid, TextInput } from '@mantine/core';
import { IconSearch } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { FilterField } from '../../ui/FilterField.tsx';
import { localTime } from '../../ui/local-time.ts';
import { IntegrationSelect } from '../integrations/IntegrationSelect.tsx';
import { integrationsQuery } from '../integrations/queries.ts';
import type { ActivitySearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import type { Filters } from './queries.ts';
import { isoOfLocal, type RangeName, ranges } from './time-range.ts';

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

/** What is looked for; all of it stands in the address. */
export function FilterBar({
  search,
  onChange,
}: {
  search: ActivitySearch;
  onChange: (next: Partial<ActivitySearch>) => void;
}) {
  const environment = useEnvironment();
  const { data: integrations = [] } = useQuery(integrationsQuery(environment));
  const isBetween = search.from !== undefined || search.to !== undefined;
  const [isChoosing, setChoosing] = useState(isBetween);
  const isReversed =
    search.from !== undefined && search.to !== undefined && Date.parse(search.to) < Date.parse(search.from);
  const between = isChoosing || isBetween;
  return (
    <SimpleGrid
      cols={{ base: 2, sm: 3, xl: 6 }}
      spacing="xs"
      verticalSpacing="xs"
      role="search"
      aria-label="Filters"
    >
      <FilterField
        aria-label="Search"
        placeholder="Path, error code or message"
        leftSection={<IconSearch size={16} />}
        value={search.text}
        onSettle={(text) => onChange({ text })}
      />
      <FilterField
        aria-label="Connection ID"
        placeholder="Connection ID"
        value={search.connection}
        onSettle={(connection) => onChange({ connection })}
      />
      <IntegrationSelect
        aria-label="Integration"
        placeholder="Every integration"
        clearable
        integrations={integrations}
        value={search.integration ?? null}
        onChange={(value) => onChange({ integration: value ?? undefined })}
      />
      <Select
        aria-label="Kind"
        placeholder="Every kind"
        clearable
        data={[...types]}
        value={search.type ?? null}
        onChange={(value) => onChange({ type: value ?? undefined })}
      />
      <Select
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
      <Select
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
            error={isReversed && 'The end is before the beginning.'}
            onChange={({ currentTarget: { value } }) => onChange({ to: isoOfLocal(value) })}
          />
        </>
      )}
    </SimpleGrid>
  );
}

/** What is looked for, in the words of the interface; without the time. */
export function filtersOf(search: ActivitySearch): Omit<Filters, 'from' | 'to' | 'cursor' | 'limit'> {
  const type = types.find((one) => one === search.type);
  return {
    ...(search.text !== undefined && { text: search.text }),
    ...(type !== undefined && { type }),
    ...(search.status !== undefined && { status: search.status }),
    ...(search.integration !== undefined && { provider_config_key: search.integration }),
    ...(search.connection !== undefined && { connection_id: search.connection }),
  };
}
