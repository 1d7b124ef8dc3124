import { Button, Checkbox, Fieldset, Group, SimpleGrid, Stack, Text } from '@mantine/core';
import type { ReactNode, Ref } from 'react';
import { groupsOf } from './scopes.ts';

/** Which scopes a key gets, in groups, each with what it lets do. */
export function ScopesField({
  givable,
  value,
  error,
  heading,
  onChange,
}: {
  givable: string[];
  value: string[];
  error: ReactNode;
  /** Takes the focus where no scope is chosen. */
  heading: Ref<HTMLParagraphElement>;
  onChange: (scopes: string[]) => void;
}) {
  const reading = givable.filter((scope) => scope.endsWith(':read'));
  const toggle = (scope: string) =>
    onChange(value.includes(scope) ? value.filter((one) => one !== scope) : [...value, scope]);
  return (
    <Stack gap="xs">
      <Group justify="space-between">
        <Text size="sm" fw={500} ref={heading} tabIndex={-1}>
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
      {error !== undefined && (
        <Text size="sm" c="var(--mantine-color-error)" role="alert">
          {error}
        </Text>
      )}
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
    </Stack>
  );
}
