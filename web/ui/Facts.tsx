import { Group, Stack, Text } from '@mantine/core';
import type { ReactNode } from 'react';

/** A list of facts, each a `Fact`. */
export function Facts({ children }: { children: ReactNode }) {
  return (
    <Stack gap="xs" component="dl" m={0}>
      {children}
    </Stack>
  );
}

export function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <Group gap="md" wrap="nowrap" align="flex-start">
      <Text component="dt" size="sm" c="dimmed" w={100} flex="none">
        {name}
      </Text>
      <Text component="dd" size="sm" m={0} miw={0} className="wrap">
        {children}
      </Text>
    </Group>
  );
}
