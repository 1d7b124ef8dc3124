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

/** What people know a connection by: its account, its end user or, without both, its ID. */
export function accountName(connection: Named): string {
  const { display_name: name } = (connection.end_user ?? {}) as Record<string, string | null | undefined>;
  return emailOf(connection) ?? name ?? connection.connection_id;
}

/** The e-mail address of the owner of the account. */
export function emailOf({ account, end_user: endUser }: Omit<Named, 'connection_id'>): string | undefined {
  const { email } = (endUser ?? {}) as Record<string, string | null | undefined>;
  return account?.email ?? email ?? undefined;
}

type Named = Pick<Connection, 'account' | 'end_user' | 'connection_id'>;

/** The ID, name and e-mail of an end user. */
export function endUserText(endUser: NonNullable<Connection['end_user']>): string {
  const { id, display_name: name, email } = endUser as Record<string, string | null | undefined>;
  return [id, name, email].filter(Boolean).join(' · ');
}
