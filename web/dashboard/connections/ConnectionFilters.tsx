import { Group, Select } from '@mantine/core';
import { IconSearch } from '@tabler/icons-react';
import { FilterField } from '../../ui/FilterField.tsx';
import { IntegrationSelect } from '../integrations/IntegrationSelect.tsx';
import type { ConnectionsSearch } from '../search.ts';

/** What narrows the list and orders it; all of it stands in the address. */
export function ConnectionFilters({
  search,
  integrations,
  onChange,
}: {
  search: ConnectionsSearch;
  integrations: { unique_key: string; display_name: string }[];
  onChange: (next: Partial<ConnectionsSearch>) => void;
}) {
  return (
    <Group gap="xs">
      <FilterField
        flex="1 1 220px"
        maw={420}
        aria-label="Search connections"
        placeholder="ID, e-mail or end user"
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
        flex="1 1 150px"
        maw={220}
        aria-label="Status"
        placeholder="Every status"
        clearable
        data={[
          { value: 'active', label: 'Active' },
          { value: 'needs_reauth', label: 'Needs reconnecting' },
          { value: 'blocked', label: 'Blocked' },
        ]}
        value={search.status ?? null}
        onChange={(status) => onChange({ status: (status ?? undefined) as ConnectionsSearch['status'] })}
      />
      <Select
        flex="1 1 130px"
        maw={200}
        aria-label="Order"
        data={[
          { value: 'created', label: 'Newest first' },
          { value: 'last_used', label: 'Last used first' },
        ]}
        value={search.sort ?? 'created'}
        allowDeselect={false}
        onChange={(sort) => onChange({ sort: sort === 'last_used' ? sort : undefined })}
      />
    </Group>
  );
}
