import { Anchor, Badge, Button, Card, Group, SimpleGrid, Skeleton, Stack, Text, Title } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { IconChevronLeft, IconRefresh } from '@tabler/icons-react';
import { useIsMutating, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useParams } from '@tanstack/react-router';
import { Copyable } from '../../ui/Copyable.tsx';
import { Fact, Facts } from '../../ui/Facts.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { OperationsTable } from '../activity/OperationsTable.tsx';
import { operationsQuery } from '../activity/queries.ts';
import { SyncsCard } from '../functions/SyncsCard.tsx';
import { DatasetsCard } from '../records/DatasetsCard.tsx';
import { SheetsCard } from '../sheets/SheetsCard.tsx';
import { sheetProvider } from '../sheets/settings.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { DeleteConnection } from './DeleteConnection.tsx';
import { endUserText } from './EndUser.tsx';
import { HealthBadge } from './HealthBadge.tsx';
import { HealthCard } from './HealthCard.tsx';
import { MetadataCard } from './MetadataCard.tsx';
import { type At, connectionQuery, deletionKey, refresh, type WholeConnection } from './queries.ts';
import { ReconnectButton } from './ReconnectButton.tsx';
import { ScopesCard } from './ScopesCard.tsx';
import { TagsCard } from './TagsCard.tsx';
import { TokenCard } from './TokenCard.tsx';

export function ConnectionPage() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const at: At = useParams({ from: '/$environment/connections/$integration/$id' });
  const isBeingDeleted = useIsMutating({ mutationKey: deletionKey(environment, at) }) > 0;
  const query = useQuery({
    ...connectionQuery(environment, at),
    refetchInterval: isBeingDeleted ? false : 5_000,
  });
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
        connection ? (
          <Group gap="xs" mt={4}>
            <HealthBadge health={connection.health} />
            <Badge color="gray">{connection.provider_config_key}</Badge>
            {connection.test && <Badge color="violet">test credentials</Badge>}
          </Group>
        ) : (
          query.isPending && <Skeleton h={22} w={220} mt={6} />
        )
      }
      actions={
        mayWrite &&
        connection && (
          <>
            <RefreshButton environment={environment} at={at} />
            <ReconnectButton environment={environment} at={at} health={connection.health} />
          </>
        )
      }
    >
      <Loaded query={query} loading={<LoadingCards />}>
        {(loaded) => (
          <Stack gap="lg">
            <HealthCard health={loaded.health} />
            {loaded.provider === sheetProvider && (
              <SheetsCard environment={environment} at={at} metadata={loaded.metadata} />
            )}
            <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
              <About connection={loaded} environment={environment} />
              <ScopesCard scopes={loaded.scopes} missing={loaded.health.missing_scopes} />
              <TokenCard token={loaded.token} health={loaded.health} />
              <TagsCard environment={environment} at={at} tags={loaded.tags} mayWrite={mayWrite} />
              <DatasetsCard environment={environment} at={at} />
              <SyncsCard environment={environment} at={at} />
            </SimpleGrid>
            <MetadataCard environment={environment} at={at} metadata={loaded.metadata} mayWrite={mayWrite} />
            <RecentActivity environment={environment} at={at} />
            {mayWrite && <DeleteConnection environment={environment} at={at} />}
          </Stack>
        )}
      </Loaded>
    </Page>
  );
}

function LoadingCards() {
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg" role="status" aria-label="Loading">
      {['a', 'b', 'c', 'd'].map((card) => (
        <Skeleton key={card} h={230} radius="md" />
      ))}
    </SimpleGrid>
  );
}

function RefreshButton({ environment, at }: { environment: string; at: At }) {
  const queries = useQueryClient();
  const renew = useMutation({
    mutationFn: () => refresh(environment, at),
    onSuccess: () => notifications.show({ message: 'The credentials are fresh.', color: 'green' }),
    onError: ({ message }) => notifications.show({ title: 'Not refreshed', message, color: 'red' }),
    onSettled: () => queries.invalidateQueries({ queryKey: [environment, 'connection'] }),
  });
  return (
    <Button
      variant="default"
      leftSection={<IconRefresh size={16} />}
      loading={renew.isPending}
      onClick={() => renew.mutate()}
    >
      Refresh now
    </Button>
  );
}

function About({ connection, environment }: { connection: WholeConnection; environment: string }) {
  return (
    <Card>
      <Title order={2} mb="xs">
        About
      </Title>
      <Facts>
        <Fact name="Connection ID">
          <Copyable value={connection.connection_id} what="the connection ID" />
        </Fact>
        <Fact name="Integration">
          <Anchor
            inherit
            renderRoot={(props) => (
              <Link
                to="/$environment/integrations/of/$key"
                params={{ environment, key: connection.provider_config_key }}
                {...props}
              />
            )}
          >
            {connection.provider_config_key}
          </Anchor>
        </Fact>
        <Fact name="End user">
          {connection.end_user === null ? 'none' : endUserText(connection.end_user)}
        </Fact>
        <Fact name="Connected">
          <RelativeTime at={connection.created_at} />
        </Fact>
        <Fact name="Last used">
          <RelativeTime at={connection.last_used_at} />
        </Fact>
      </Facts>
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
