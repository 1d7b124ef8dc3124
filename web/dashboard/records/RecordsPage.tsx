import { Badge, Box, Button, Group, Pagination, Stack, Table, Text } from '@mantine/core';
import { IconDatabase, IconHourglassLow, IconSearch } from '@tabler/icons-react';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FilterField } from '../../ui/FilterField.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { EndUser } from '../connections/EndUser.tsx';
import { type Connection, connectionsQuery } from '../connections/queries.ts';
import { useEnvironment } from '../shell/environment.ts';

const pageSize = 25;

/** Records belong to a connection: whose shall be looked at? */
export function RecordsPage() {
  const environment = useEnvironment();
  const { search, page = 0 } = useSearch({ from: '/$environment/records' });
  const navigate = useNavigate({ from: '/$environment/records' });
  const connections = useQuery({
    ...connectionsQuery(environment, { ...(search !== undefined && { search }), limit: pageSize, page }),
    placeholderData: keepPreviousData,
  });
  return (
    <Page
      title="Records"
      about="What was synced through a connection. Choose whose records to look at."
      actions={
        <Button
          variant="default"
          leftSection={<IconHourglassLow size={16} />}
          renderRoot={(props) => (
            <Link to="/$environment/records/retention" params={{ environment }} {...props} />
          )}
        >
          Retention
        </Button>
      }
    >
      <FilterField
        maw={420}
        aria-label="Search connections"
        placeholder="Account, connection ID or end user"
        leftSection={<IconSearch size={16} />}
        value={search}
        onSettle={(typed) => void navigate({ search: { search: typed, page: undefined }, replace: true })}
      />
      <Loaded query={connections}>
        {({ connections: found }) => {
          const hasMore = found.length === pageSize;
          if (found.length === 0 && page === 0) {
            return <Empty environment={environment} isFiltered={search !== undefined} />;
          }
          return (
            <Stack>
              <Choices connections={found} environment={environment} />
              {(page > 0 || hasMore) && (
                <Pagination
                  total={page + (hasMore ? 2 : 1)}
                  value={page + 1}
                  onChange={(next) =>
                    void navigate({
                      search: (former) => ({ ...former, page: next > 1 ? next - 1 : undefined }),
                    })
                  }
                  getControlProps={(control) => ({ 'aria-label': `${control} page` })}
                />
              )}
            </Stack>
          );
        }}
      </Loaded>
    </Page>
  );
}

function Choices({ connections, environment }: { connections: Connection[]; environment: string }) {
  return (
    <Table.ScrollContainer minWidth={300} className="framed">
      <Table verticalSpacing="sm" horizontalSpacing="md">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Account</Table.Th>
            <Table.Th>Integration</Table.Th>
            <Table.Th visibleFrom="xs">Connected</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {connections.map((connection) => (
            <Table.Tr key={connection.id} className="fill-row">
              <Table.Td>
                <Link
                  className="fill-link"
                  to="/$environment/records/of/$integration/$id"
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
                <EndUser of={connection.end_user} />
              </Table.Td>
              <Table.Td>
                <Group gap={6}>
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

function Empty({ environment, isFiltered }: { environment: string; isFiltered: boolean }) {
  const icon = <IconDatabase size={26} />;
  if (isFiltered) {
    return (
      <EmptyState icon={icon} title="Nothing fits">
        No connection has this account, ID or end user.
      </EmptyState>
    );
  }
  return (
    <EmptyState
      icon={icon}
      title="A connection comes first"
      action={
        <Button
          renderRoot={(props) => (
            <Link to="/$environment/connections" params={{ environment }} search={{}} {...props} />
          )}
        >
          To the connections
        </Button>
      }
    >
      Records are kept for the connection that brought them. As soon as there is one, it is listed here.
    </EmptyState>
  );
}
