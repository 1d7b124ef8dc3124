import { Badge, Box, Button, Group, Pagination, Select, Stack, Table, Text, TextInput } from '@mantine/core';
import { useDebouncedCallback, useDisclosure } from '@mantine/hooks';
import { IconPlugConnected, IconPlus, IconSearch } from '@tabler/icons-react';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { integrationsQuery } from '../integrations/queries.ts';
import type { ConnectionsSearch } from '../router.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { ConnectDialog } from './ConnectDialog.tsx';
import { HealthBadge } from './HealthBadge.tsx';
import { type Connection, connectionsQuery } from './queries.ts';

const pageSize = 50;

export function ConnectionsPage() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const search = useSearch({ from: '/$environment/connections' });
  const navigate = useNavigate({ from: '/$environment/connections' });
  const [isOpen, { open, close }] = useDisclosure();
  const { data: integrations = [] } = useQuery(integrationsQuery(environment));
  const page = search.page ?? 0;
  const connections = useQuery({
    ...connectionsQuery(environment, {
      ...(search.search !== undefined && { search: search.search }),
      ...(search.integration !== undefined && { integrationId: search.integration }),
      limit: pageSize,
      page,
    }),
    placeholderData: keepPreviousData,
    refetchInterval: 5_000,
  });
  const change = (next: Partial<ConnectionsSearch>) =>
    void navigate({ search: (former) => ({ ...former, page: undefined, ...next }), replace: true });
  const isFiltered =
    search.search !== undefined || search.integration !== undefined || search.status !== undefined;
  return (
    <Page
      title="Connections"
      about="The accounts of your users, each with the credentials to call its provider."
      actions={
        mayWrite &&
        integrations.length > 0 && (
          <Button leftSection={<IconPlus size={16} />} onClick={open}>
            Add a test connection
          </Button>
        )
      }
    >
      <Filters search={search} integrations={integrations} onChange={change} />
      <Loaded query={connections}>
        {({ connections: found }) => {
          const hasMore = found.length === pageSize;
          const shown = found.filter(
            ({ health }) => search.status === undefined || health.status === search.status,
          );
          if (shown.length === 0 && page === 0 && !hasMore) {
            return (
              <Empty
                environment={environment}
                isFiltered={isFiltered}
                hasIntegration={integrations.length > 0}
                onAdd={mayWrite ? open : undefined}
              />
            );
          }
          return (
            <Stack>
              <ConnectionsTable connections={shown} environment={environment} />
              {(page > 0 || hasMore) && (
                <Pagination
                  total={page + (hasMore ? 2 : 1)}
                  value={page + 1}
                  onChange={(next) => change({ page: next > 1 ? next - 1 : undefined })}
                  getControlProps={(control) => ({ 'aria-label': `${control} page` })}
                />
              )}
            </Stack>
          );
        }}
      </Loaded>
      <ConnectDialog environment={environment} isOpen={isOpen} onClose={close} />
    </Page>
  );
}

function Filters({
  search,
  integrations,
  onChange,
}: {
  search: ConnectionsSearch;
  integrations: { unique_key: string; display_name: string }[];
  onChange: (next: Partial<ConnectionsSearch>) => void;
}) {
  const [typed, setTyped] = useState(search.search ?? '');
  const settle = useDebouncedCallback(
    (value: string) => onChange({ search: value.trim() || undefined }),
    250,
  );
  return (
    <Group gap="xs">
      <TextInput
        flex="1 1 220px"
        maw={420}
        aria-label="Search connections"
        placeholder="ID, e-mail or end user"
        leftSection={<IconSearch size={16} />}
        value={typed}
        onChange={({ currentTarget }) => {
          setTyped(currentTarget.value);
          settle(currentTarget.value);
        }}
      />
      <Select
        flex="1 1 150px"
        maw={220}
        aria-label="Integration"
        placeholder="Every integration"
        clearable
        data={integrations.map(({ unique_key, display_name }) => ({
          value: unique_key,
          label: display_name,
        }))}
        value={search.integration ?? null}
        onChange={(integration) => onChange({ integration: integration ?? undefined })}
      />
      <Select
        flex="1 1 150px"
        maw={220}
        aria-label="Status"
        placeholder="Every status"
        clearable
        data={[
          { value: 'active', label: 'Active' },
          { value: 'needs_reauth', label: 'Needs reconnecting' },
          { value: 'blocked', label: 'Blocked' },
        ]}
        value={search.status ?? null}
        onChange={(status) => onChange({ status: (status ?? undefined) as ConnectionsSearch['status'] })}
      />
    </Group>
  );
}

function ConnectionsTable({ connections, environment }: { connections: Connection[]; environment: string }) {
  return (
    <Table.ScrollContainer minWidth={300} className="framed">
      <Table verticalSpacing="sm" horizontalSpacing="md">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Account</Table.Th>
            <Table.Th>Health</Table.Th>
            <Table.Th visibleFrom="sm">Integration</Table.Th>
            <Table.Th visibleFrom="xs">Connected</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {connections.map((connection) => (
            <Table.Tr key={connection.id} className="fill-row">
              <Table.Td>
                <Link
                  className="fill-link"
                  to="/$environment/connections/$integration/$id"
                  params={{
                    environment,
                    integration: connection.provider_config_key,
                    id: connection.connection_id,
                  }}
                >
                  <Text span fw={550} size="sm" className="wrap">
                    {connection.account?.email ?? connection.connection_id}
                  </Text>
                </Link>
                <Text size="xs" c="dimmed" ff="monospace" className="wrap">
                  {connection.connection_id}
                </Text>
              </Table.Td>
              <Table.Td>
                <HealthBadge health={connection.health} />
              </Table.Td>
              <Table.Td visibleFrom="sm">
                <Group gap={6} wrap="nowrap">
                  {connection.provider_config_key}
                  {connection.test && <Badge color="violet">test</Badge>}
                </Group>
              </Table.Td>
              <Table.Td visibleFrom="xs">
                <Box pos="relative" w="fit-content">
                  <RelativeTime at={connection.created} size="sm" />
                </Box>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function Empty(given: {
  environment: string;
  isFiltered: boolean;
  hasIntegration: boolean;
  onAdd: (() => void) | undefined;
}) {
  const icon = <IconPlugConnected size={26} />;
  if (given.isFiltered) {
    return (
      <EmptyState icon={icon} title="Nothing fits">
        No connection matches these filters.
      </EmptyState>
    );
  }
  if (!given.hasIntegration) {
    return (
      <EmptyState
        icon={icon}
        title="An integration comes first"
        action={
          <Button
            renderRoot={(props) => (
              <Link
                to="/$environment/integrations/new"
                params={{ environment: given.environment }}
                {...props}
              />
            )}
          >
            Add an integration
          </Button>
        }
      >
        Connections are made through one. With test credentials it takes a click.
      </EmptyState>
    );
  }
  return (
    <EmptyState
      icon={icon}
      title="No connection yet"
      action={given.onAdd && <Button onClick={given.onAdd}>Add a test connection</Button>}
    >
      Connect an account yourself, or let your application make a link for its users with{' '}
      <code>POST /connect/sessions</code>.
    </EmptyState>
  );
}
