import { ActionIcon, Autocomplete, Button, Group, Stack, Text, TextInput, Tooltip } from '@mantine/core';
import { IconPlus, IconX } from '@tabler/icons-react';
import type { Pair } from './request.ts';

/** Names with values: parameters, headers. Known names are suggested. */
export function PairsEditor({
  what,
  pairs,
  known = [],
  hint,
  onChange,
}: {
  what: string;
  pairs: Pair[];
  known?: string[];
  hint: string;
  onChange: (pairs: Pair[]) => void;
}) {
  const change = (index: number, next: Partial<Pair>) =>
    onChange(pairs.map((pair, at) => (at === index ? { ...pair, ...next } : pair)));
  return (
    <Stack gap="xs">
      <Text size="sm" c="dimmed">
        {hint}
      </Text>
      {pairs.map((pair, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a row is its place in the list; names may repeat
        <Group key={index} gap="xs" wrap="nowrap">
          <Autocomplete
            flex="1 1 50%"
            aria-label={`${what} ${index + 1}: name`}
            placeholder="Name"
            data={known}
            value={pair.name}
            onChange={(name) => change(index, { name })}
          />
          <TextInput
            flex="1 1 50%"
            aria-label={`${what} ${index + 1}: value`}
            placeholder="Value"
            value={pair.value}
            onChange={({ currentTarget: { value } }) => change(index, { value })}
          />
          <Tooltip label="Remove">
            <ActionIcon
              variant="subtle"
              color="gray"
              aria-label={`Remove ${what.toLowerCase()} ${index + 1}`}
              onClick={() => onChange(pairs.filter((_, at) => at !== index))}
            >
              <IconX size={16} />
            </ActionIcon>
          </Tooltip>
        </Group>
      ))}
      <Button
        w="fit-content"
        size="compact-sm"
        variant="default"
        leftSection={<IconPlus size={14} />}
        onClick={() => onChange([...pairs, { name: '', value: '' }])}
      >
        Add a {what.toLowerCase()}
      </Button>
    </Stack>
  );
}
