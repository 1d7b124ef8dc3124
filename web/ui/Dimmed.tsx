import { Text, type TextProps } from '@mantine/core';
import type { ReactNode } from 'react';

/** A secondary text: small and grey. */
export function Dimmed(
  props: TextProps & { children?: ReactNode; role?: 'status'; title?: string | undefined },
) {
  return <Text size="sm" c="dimmed" {...props} />;
}
