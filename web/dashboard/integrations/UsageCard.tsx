import { Anchor, Card, Group, Progress, Stack, Text, Title } from '@mantine/core';
import type { UseQueryResult } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import type { Connection } from '../connections/queries.ts';

/** How many connections there are, and how they are. */
export function UsageCard({
  environment,
  integration,
  connections,
}: {
  environment: string;
  integration: string;
  connections: UseQueryResult<{ connections: Connection[] }>;
}) {
  return (
    <Card>
      <Group justify="space-between" mb="sm">
        <Title order={2}>Connections</Title>
        <Anchor
          size="sm"
          renderRoot={(props) => (
            <Link
              to="/$environment/connections"
              params={{ environment }}
              search={{ integration }}
              {...props}
            />
          )}
        >
          All of them
        </Anchor>
      </Group>
      <Loaded query={connections} loading={<LoadingRows rows={1} />}>
        {({ connections: found }) => <Shares connections={found} />}
      </Loaded>
    </Card>
  );
}

function Shares({ connections }: { connections: Connection[] }) {
  const total = connections.length;
  if (total === 0) {
    return (
      <Text size="sm" c="dimmed">
        Nobody has connected an account yet.
      </Text>
    );
  }
  const dead = connections.filter(({ health }) => health.status !== 'active').length;
  const troubled = connections.filter(
    ({ health }) => health.status === 'active' && health.cause !== null,
  ).length;
  const shares = [
    { name: 'healthy', count: total - dead - troubled, color: 'teal' },
    { name: 'troubled', count: troubled, color: 'yellow' },
    { name: 'need reconnecting', count: dead, color: 'red' },
  ].filter(({ count }) => count > 0);
  return (
    <Stack gap="xs">
      <Progress.Root size={10} aria-hidden>
        {shares.map(({ name, count, color }) => (
          <Progress.Section key={name} value={(count / total) * 100} color={color} />
        ))}
      </Progress.Root>
      <Group gap="md">
        {shares.map(({ name, count, color }) => (
          <Text key={name} size="sm">
            <Text span c={`${color}.6`} aria-hidden>
              ■
            </Text>{' '}
            {count.toLocaleString()} {name}
          </Text>
        ))}
      </Group>
    </Stack>
  );
}
