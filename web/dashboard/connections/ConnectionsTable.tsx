import { Badge, Group, Table, Text } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { EndUser } from './EndUser.tsx';
import { HealthBadge } from './HealthBadge.tsx';
import type { Connection } from './queries.ts';

/** Connections in the order they come; a row leads to the connection. */
export function ConnectionsTable({
  connections,
  environment,
}: {
  connections: Connection[];
  environment: string;
}) {
  return (
    <Table.ScrollContainer minWidth={300} className="framed">
      <Table verticalSpacing="sm" horizontalSpacing="md">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Account</Table.Th>
            <Table.Th visibleFrom="xs">Status</Table.Th>
            <Table.Th visibleFrom="sm">Integration</Table.Th>
            <Table.Th visibleFrom="xs">Age</Table.Th>
            <Table.Th visibleFrom="md">Last used</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {connections.map((connection) => (
            <Row key={connection.id} connection={connection} environment={environment} />
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function Row({ connection, environment }: { connection: Connection; environment: string }) {
  const { connection_id: id, provider_config_key: integration } = connection;
  return (
    <Table.Tr className="fill-row">
      <Table.Td>
        <Link
          className="fill-link"
          to="/$environment/connections/$integration/$id"
          params={{ environment, integration, id }}
        >
          <Text span fw={550} size="sm" className="wrap">
            {connection.account?.email ?? id}
          </Text>
        </Link>
        {connection.account?.email && (
          <Text size="xs" c="dimmed" ff="monospace" className="wrap" visibleFrom="sm">
            {id}
          </Text>
        )}
        <EndUser of={connection.end_user} />
        <Group hiddenFrom="xs" gap={6} mt={4}>
          <HealthBadge health={connection.health} />
          <Text size="xs" c="dimmed">
            {integration}
          </Text>
        </Group>
      </Table.Td>
      <Table.Td visibleFrom="xs">
        <HealthBadge health={connection.health} />
      </Table.Td>
      <Table.Td visibleFrom="sm">
        <Group gap={6} wrap="nowrap">
          {integration}
          {connection.test && <Badge color="violet">test</Badge>}
        </Group>
      </Table.Td>
      <Table.Td visibleFrom="xs">
        <RelativeTime at={connection.created} size="sm" className="above" />
      </Table.Td>
      <Table.Td visibleFrom="md">
        <RelativeTime at={connection.last_used_at} size="sm" className="above" />
      </Table.Td>
    </Table.Tr>
  );
}
