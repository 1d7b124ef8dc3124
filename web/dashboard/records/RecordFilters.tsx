import { Button, Group, MultiSelect, TextInput } from '@mantine/core';
import { IconSearch, IconX } from '@tabler/icons-react';
import { FilterField } from '../../ui/FilterField.tsx';
import { localTime } from '../../ui/local-time.ts';
import type { DatasetSearch } from '../search.ts';

const actions = [
  { value: 'added', label: 'Added' },
  { value: 'updated', label: 'Updated' },
  { value: 'deleted', label: 'Deleted' },
];

/** Which records of a dataset to show. */
export function RecordFilters({
  search,
  onChange,
}: {
  search: DatasetSearch;
  onChange: (next: Partial<DatasetSearch>) => void;
}) {
  const isFiltered = [search.ids, search.action, search.after].some((one) => one !== undefined);
  return (
    <Group gap="xs" align="flex-end">
      <FilterField
        flex="1 1 220px"
        maw={{ sm: 420 }}
        label="Record IDs"
        placeholder="7, 8, 9"
        leftSection={<IconSearch size={16} />}
        value={search.ids}
        onSettle={(ids) => onChange({ ids })}
      />
      <MultiSelect
        flex="1 1 180px"
        maw={{ sm: 300 }}
        label="Last action"
        placeholder={search.action === undefined ? 'Any' : ''}
        data={actions}
        value={search.action?.split(',') ?? []}
        onChange={(chosen) => onChange({ action: chosen.length === 0 ? undefined : chosen.join(',') })}
      />
      <TextInput
        flex="1 1 180px"
        maw={{ sm: 240 }}
        type="datetime-local"
        label="Changed at or after"
        value={localTime(search.after)}
        onChange={({ currentTarget: { value } }) =>
          onChange({ after: value === '' ? undefined : new Date(value).toISOString() })
        }
      />
      {isFiltered && (
        <Button
          variant="subtle"
          leftSection={<IconX size={16} />}
          onClick={() => onChange({ ids: undefined, action: undefined, after: undefined })}
        >
          Clear
        </Button>
      )}
    </Group>
  );
}
