import { Anchor, Badge, Button, Card, Group, SimpleGrid, Stack, Table, Text, Title } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { IconChevronLeft, IconExternalLink, IconRefresh } from '@tabler/icons-react';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useParams } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { Copyable } from '../../ui/Copyable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { OperationsTable } from '../activity/OperationsTable.tsx';
import { operationsQuery } from '../activity/queries.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { DeleteConnection } from './DeleteConnection.tsx';
import { HealthBadge } from './HealthBadge.tsx';
import { HealthCard } from './HealthCard.tsx';
import { MetadataCard } from './MetadataCard.tsx';
import {
  type At,
  connectionQuery,
  datasetsQuery,
  newReconnectLink,
  refresh,
  type WholeConnection,
} from './queries.ts';
import { ScopesCard } from './ScopesCard.tsx';

export function ConnectionPage() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const at: At = useParams({ from: '/$environment/connections/$integration/$id' });
  const query = useQuery({ ...connectionQuery(environment, at), refetchInterval: 5_000 });
  const { data: connection } = query;
  return (
    <Page
      title={connection?.account?.email ?? at.id}
      before={
        <Anchor
          size="sm"
          c="dimmed"
          renderRoot={(props) => (
            <Link to="/$environment/connections" params={{ environment }} search={{}} {...props} />
          )}
        >
          <Group gap={4} mb={6}>
            <IconChevronLeft size={14} /> Connections
          </Group>
        </Anchor>
      }
      about={
        connection && (
          <Group gap="xs" mt={4}>
            <HealthBadge health={connection.health} />
            <Badge color="gray">{connection.provider_config_key}</Badge>
            {connection.test && <Badge color="violet">test credentials</Badge>}
          </Group>
        )
      }
      actions={mayWrite && connection && <Actions environment={environment} at={at} />}
    >
      <Loaded query={query}>
        {(loaded) => (
          <Stack gap="lg">
            <HealthCard health={loaded.health} />
            <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
              <Facts connection={loaded} />
              <ScopesCard scopes={loaded.scopes} missing={loaded.health.missing_scopes} />
              <Datasets environment={environment} at={at} />
              <MetadataCard
                environment={environment}
                at={at}
                metadata={loaded.metadata}
                mayWrite={mayWrite}
              />
            </SimpleGrid>
            <RecentActivity environment={environment} at={at} />
            {mayWrite && <DeleteConnection environment={environment} at={at} />}
          </Stack>
        )}
      </Loaded>
    </Page>
  );
}

function Actions({ environment, at }: { environment: string; at: At }) {
  const queries = useQueryClient();
  const renew = useMutation({
    mutationFn: () => refresh(environment, at),
    onSuccess: () => notifications.show({ message: 'The credentials are fresh.', color: 'green' }),
    onError: ({ message }) => notifications.show({ title: 'Not refreshed', message, color: 'red' }),
    onSettled: () => queries.invalidateQueries({ queryKey: [environment, 'connection'] }),
  });
  const reconnect = useMutation({
    mutationFn: () => newReconnectLink(environment, at),
    onSuccess: (link) => window.open(link, '_blank', 'noopener'),
    onError: ({ message }) => notifications.show({ title: 'No link', message, color: 'red' }),
  });
  return (
    <>
      <Button
        variant="default"
        leftSection={<IconRefresh size={16} />}
        loading={renew.isPending}
        onClick={() => renew.mutate()}
      >
        Refresh now
      </Button>
      <Button
        variant="default"
        leftSection={<IconExternalLink size={16} />}
        loading={reconnect.isPending}
        onClick={() => reconnect.mutate()}
      >
        Reconnect
      </Button>
    </>
  );
}

function Facts({ connection }: { connection: WholeConnection }) {
  const { end_user: endUser } = connection;
  const tags = Object.entries(connection.tags);
  return (
    <Card>
      <Title order={2} mb="xs">
        About
      </Title>
      <Stack gap="xs" component="dl" m={0}>
        <Fact name="Connection ID">
          <Copyable value={connection.connection_id} what="the connection ID" />
        </Fact>
        <Fact name="End user">{endUser === null ? 'none' : String(endUser.id ?? '')}</Fact>
        <Fact name="Connected">
          <RelativeTime at={connection.created_at} />
        </Fact>
        <Fact name="Last used">
          <RelativeTime at={connection.last_fetched_at} />
        </Fact>
        <Fact name="Tags">
          {tags.length === 0 && 'none'}
          <Group gap={4}>
            {tags.map(([name, value]) => (
              <Badge key={name} color="gray">
                {name}: {value}
              </Badge>
            ))}
          </Group>
        </Fact>
      </Stack>
    </Card>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <Group gap="md" wrap="nowrap" mih={30}>
      <Text component="dt" size="sm" c="dimmed" w={110} flex="none">
        {name}
      </Text>
      <Text component="dd" size="sm" m={0} miw={0}>
        {children}
      </Text>
    </Group>
  );
}

function Datasets({ environment, at }: { environment: string; at: At }) {
  const query = useQuery(datasetsQuery(environment, at));
  return (
    <Card>
      <Title order={2} mb="xs">
        Records
      </Title>
      <Loaded query={query}>
        {(datasets) =>
          datasets.length === 0 ? (
            <Text c="dimmed" size="sm">
              Nothing is cached for this connection yet.
            </Text>
          ) : (
            <Table>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>Model</Table.Th>
                  <Table.Th ta="right">Records</Table.Th>
                  <Table.Th ta="right">Pruned</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {datasets.map(({ model, variant, records, pruned }) => (
                  <Table.Tr key={`${model}:${variant}`}>
                    <Table.Td className="wrap">
                      {model}
                      {variant !== 'base' && ` · ${variant}`}
                    </Table.Td>
                    <Table.Td ta="right">{records.toLocaleString()}</Table.Td>
                    <Table.Td ta="right">{pruned.toLocaleString()}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          )
        }
      </Loaded>
    </Card>
  );
}

function RecentActivity({ environment, at }: { environment: string; at: At }) {
  const filters = { provider_config_key: at.integration, connection_id: at.id };
  const query = useQuery(operationsQuery(environment, { ...filters, limit: 10 }));
  return (
    <Stack gap="xs">
      <Group justify="space-between">
        <Title order={2}>Latest activity</Title>
        <Anchor
          size="sm"
          renderRoot={(props) => (
            <Link
              to="/$environment/activity"
              params={{ environment }}
              search={{ integration: at.integration, connection: at.id }}
              {...props}
            />
          )}
        >
          All of it
        </Anchor>
      </Group>
      <Loaded query={query}>
        {({ operations }) =>
          operations.length === 0 ? (
            <Text c="dimmed" size="sm">
              Nothing was done with this connection yet.
            </Text>
          ) : (
            <OperationsTable operations={operations} environment={environment} />
          )
        }
      </Loaded>
    </Stack>
  );
}
