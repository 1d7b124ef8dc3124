import { Group, Select, Stack, Text } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { keepPreviousData, useQueries, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { IconPlugConnected } from '../../ui/icons.tsx';
import { accountName } from '../connections/EndUser.tsx';
import { HealthBadge } from '../connections/HealthBadge.tsx';
import { type Connection, connectionsQuery } from '../connections/queries.ts';
import { providerQuery } from '../integrations/queries.ts';
import { useEnvironment } from '../shell/environment.ts';
import type { Chosen } from './Playground.tsx';

/** The connection that makes the call, found by ID, e-mail or end user. */
export function ConnectionPicker({
  integration,
  chosen,
  onChoose,
}: {
  /** Only connections of this integration; undefined: all whose provider has an API. */
  integration?: string | undefined;
  chosen: Chosen | undefined;
  onChoose: (connection: Connection) => void;
}) {
  const environment = useEnvironment();
  const label = chosen && nameOf(chosen);
  const [typed, setTyped] = useState('');
  const [search] = useDebouncedValue(typed === label ? '' : typed, 200);
  const { data, isFetching } = useQuery({
    ...connectionsQuery(environment, {
      limit: 20,
      ...(search !== '' && { search }),
      ...(integration !== undefined && { integration_id: integration }),
    }),
    placeholderData: keepPreviousData,
  });
  const found = data?.connections ?? [];
  const providers = new Set(integration === undefined ? found.map(({ provider }) => provider) : []);
  const lacksApi = useQueries({
    queries: [...providers].map((provider) => providerQuery(environment, provider)),
    combine: (results) =>
      results.flatMap(({ data }) => (data && data.proxy === undefined ? [data.name] : [])),
  });
  const options: { value: string; label: string; disabled?: boolean }[] = found.map((one) => ({
    value: keyOf(one),
    label: nameOf(one),
    disabled: lacksApi.includes(one.provider),
  }));
  if (chosen !== undefined && !options.some(({ value }) => value === keyOf(chosen))) {
    options.unshift({ value: keyOf(chosen), label: nameOf(chosen) });
  }
  return (
    <Select
      label="Connection"
      placeholder="Choose a connection"
      searchable
      allowDeselect={false}
      data={options}
      // The service has already filtered.
      filter={({ options: all }) => all}
      value={chosen === undefined ? null : keyOf(chosen)}
      onSearchChange={setTyped}
      onChange={(key) => {
        const connection = found.find((one) => keyOf(one) === key);
        if (connection !== undefined) onChoose(connection);
      }}
      leftSection={<IconPlugConnected size={16} />}
      nothingFoundMessage={isFetching ? 'Searching' : 'No match'}
      maxDropdownHeight={320}
      renderOption={({ option }) => {
        const connection = found.find((one) => keyOf(one) === option.value);
        return (
          <Group justify="space-between" wrap="nowrap" flex={1} miw={0}>
            <Stack gap={0} miw={0}>
              <Text size="sm" truncate>
                {option.label}
              </Text>
              <Text size="xs" c="dimmed" truncate>
                {connection?.integration_id}
                {option.disabled && ' · has no HTTP API'}
              </Text>
            </Stack>
            {connection !== undefined && <HealthBadge health={connection.health} />}
          </Group>
        );
      }}
    />
  );
}

const keyOf = (one: Pick<Connection, 'connection_id' | 'integration_id'>) =>
  `${one.integration_id}/${one.connection_id}`;
const nameOf = (one: Chosen) => `${accountName(one)} · ${one.integration_id}`;
