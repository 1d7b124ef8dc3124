import { Text } from '@mantine/core';
import type { Connection } from './queries.ts';

/** For whom an account was connected: several people may have connected the same one. Nothing where nobody is named. */
export function EndUser({ of }: { of: Connection['end_user'] }) {
  if (of === null) return null;
  return (
    <Text size="xs" c="dimmed" className="wrap">
      for {endUserText(of)}
    </Text>
  );
}

/** All that is known of an end user, the ID first. */
export function endUserText(endUser: NonNullable<Connection['end_user']>): string {
  const { id, display_name: name, email } = endUser as Record<string, string | null | undefined>;
  return [id, name, email].filter(Boolean).join(' · ');
}
