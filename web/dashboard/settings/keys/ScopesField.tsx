import { Button, Checkbox, Fieldset, Group, SimpleGrid, Stack, Text } from '@mantine/core';
import type { ReactNode } from 'react';
import { groupsOf } from './scopes.ts';

/** Which scopes a key gets, in groups, each with what it lets do. */
export function ScopesField({
  givable,
  value,
  error,
  onChange,
}: {
  givable: string[];
  value: string[];
  error: ReactNode;
  onChange: (scopes: string[]) => void;
}) {
  const reading = givable.filter((scope) => scope.endsWith(':read'));
  const toggle = (scope: string) =>
    onChange(value.includes(scope) ? value.filter((one) => one !== scope) : [...value, scope]);
  return (
    <Stack gap="xs">
      <Group justify="space-between">
        <Text size="sm" fw={500}>
          Scopes
        </Text>
        <Group gap={4}>
          <Button variant="subtle" size="compact-sm" onClick={() => onChange(reading)}>
            All that read
          </Button>
          <Button variant="subtle" size="compact-sm" onClick={() => onChange(givable)}>
            All
          </Button>
          <Button variant="subtle" size="compact-sm" onClick={() => onChange([])}>
            None
          </Button>
        </Group>
      </Group>
      <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
        {groupsOf(givable).map(({ name, scopes }) => (
          <Fieldset key={name} legend={name} p="sm">
            <Stack gap={8}>
              {scopes.map(({ scope, about }) => (
                <Checkbox
                  key={scope}
                  label={scope}
                  description={about}
                  checked={value.includes(scope)}
                  onChange={() => toggle(scope)}
                />
              ))}
            </Stack>
          </Fieldset>
        ))}
      </SimpleGrid>
      {error !== undefined && (
        <Text size="sm" c="red" role="alert">
          {error}
        </Text>
      )}
    </Stack>
  );
}
