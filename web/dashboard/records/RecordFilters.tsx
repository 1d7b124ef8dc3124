import { Button, Group, MultiSelect, TextInput } from '@mantine/core';
import { useDebouncedCallback } from '@mantine/hooks';
import { IconSearch, IconX } from '@tabler/icons-react';
import { useState } from 'react';
import type { DatasetSearch } from '../router.tsx';

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
  const [ids, setIds] = useState(search.ids ?? '');
  const settle = useDebouncedCallback((value: string) => onChange({ ids: value.trim() || undefined }), 300);
  const isFiltered = [search.ids, search.action, search.after].some((one) => one !== undefined);
  return (
    <Group gap="xs" align="flex-end">
      <TextInput
        flex="1 1 220px"
        maw={{ sm: 420 }}
        label="Record IDs"
        placeholder="7, 8, 9"
        leftSection={<IconSearch size={16} />}
        value={ids}
        onChange={({ currentTarget }) => {
          setIds(currentTarget.value);
          settle(currentTarget.value);
        }}
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
        value={localOf(search.after)}
        onChange={({ currentTarget: { value } }) =>
          onChange({ after: value === '' ? undefined : new Date(value).toISOString() })
        }
      />
      {isFiltered && (
        <Button
          variant="subtle"
          leftSection={<IconX size={16} />}
          onClick={() => {
            setIds('');
            onChange({ ids: undefined, action: undefined, after: undefined });
          }}
        >
          Clear
        </Button>
      )}
    </Group>
  );
}

/** An instant as the browser's input of a local time spells it; empty where it is none. */
function localOf(instant: string | undefined): string {
  const at = new Date(instant ?? '');
  if (Number.isNaN(at.getTime())) return '';
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
