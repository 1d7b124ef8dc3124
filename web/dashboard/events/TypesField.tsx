import { Box, Checkbox, Radio, ScrollArea, Stack, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Loaded } from '../../ui/Loaded.tsx';
import { type EventType, typesQuery } from './queries.ts';

/** Which types of events are wanted: all, or some by name, or whole kinds as `connection.*`. None means all. */
export function TypesField({
  environment,
  value,
  onChange,
}: {
  environment: string;
  value: string[];
  onChange: (types: string[]) => void;
}) {
  const query = useQuery(typesQuery(environment));
  const [wantsSome, setWantsSome] = useState(value.length > 0);
  return (
    <Stack gap="xs">
      <Radio.Group
        label="Events"
        value={wantsSome ? 'some' : 'all'}
        onChange={(next) => {
          setWantsSome(next === 'some');
          if (next === 'all') onChange([]);
        }}
      >
        <Stack gap={6} mt={6}>
          <Radio value="all" label="All, also those of later releases" />
          <Radio value="some" label="Only some" />
        </Stack>
      </Radio.Group>
      {wantsSome && (
        <Loaded query={query}>
          {(types) => (
            <ScrollArea.Autosize mah={320} type="auto" className="framed">
              <Stack p="sm" gap="md">
                {kindsOf(types).map(([kind, own]) => (
                  <Kind key={kind} kind={kind} types={own} value={value} onChange={onChange} />
                ))}
              </Stack>
            </ScrollArea.Autosize>
          )}
        </Loaded>
      )}
    </Stack>
  );
}

function Kind({
  kind,
  types,
  value,
  onChange,
}: {
  kind: string;
  types: EventType[];
  value: string[];
  onChange: (types: string[]) => void;
}) {
  const all = `${kind}.*`;
  const hasAll = value.includes(all);
  const others = value.filter((name) => name !== all && !name.startsWith(`${kind}.`));
  const toggle = (name: string) =>
    onChange(value.includes(name) ? value.filter((one) => one !== name) : [...value, name]);
  return (
    <Box>
      <Checkbox
        label={<b>{all}</b>}
        checked={hasAll}
        onChange={() => onChange(hasAll ? others : [...others, all])}
      />
      <Stack gap={8} mt={8} pl="lg">
        {types.map(({ type, meaning }) => (
          <Checkbox
            key={type}
            label={type}
            description={
              <Text span size="xs" c="dimmed">
                {meaning}
              </Text>
            }
            checked={hasAll || value.includes(type)}
            disabled={hasAll}
            onChange={() => toggle(type)}
          />
        ))}
      </Stack>
    </Box>
  );
}

function kindsOf(types: EventType[]): [string, EventType[]][] {
  const kinds = new Map<string, EventType[]>();
  for (const type of types) {
    const kind = type.type.split('.')[0] ?? '';
    kinds.set(kind, [...(kinds.get(kind) ?? []), type]);
  }
  return [...kinds];
}
