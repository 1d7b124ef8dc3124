import { Group, Text } from '@mantine/core';
import type { ReactNode } from 'react';

/** A list of facts, each a `Fact`, in as many columns as fit. */
export function Facts({ children }: { children: ReactNode }) {
  return <dl className="facts">{children}</dl>;
}

export function Fact({ name, children }: { name: ReactNode; children: ReactNode }) {
  return (
    <Group gap="sm" wrap="nowrap" align="flex-start">
      <Text component="dt" size="sm" c="dimmed" w={100} flex="none" className="wrap">
        {name}
      </Text>
      <Text component="dd" size="sm" m={0} miw={0} className="wrap">
        {children}
      </Text>
    </Group>
  );
}
