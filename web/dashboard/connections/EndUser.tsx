import { Text } from '@mantine/core';
import type { Connection } from './queries.ts';

/** The end user of a connection: several users may have connected the same account. Nothing without an end user. */
export function EndUser({ of }: { of: Connection['end_user'] }) {
  if (of === null) return null;
  return (
    <Text size="xs" c="dimmed" className="wrap">
      for {endUserText(of)}
    </Text>
  );
}

/** The ID, name and e-mail of an end user. */
export function endUserText(endUser: NonNullable<Connection['end_user']>): string {
  const { id, display_name: name, email } = endUser as Record<string, string | null | undefined>;
  return [id, name, email].filter(Boolean).join(' · ');
}
