import { Badge, Box, Group, Pagination, Stack, Text } from '@mantine/core';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FilterField } from '../../ui/FilterField.tsx';
import { IconDatabase, IconHourglassLow, IconSearch } from '../../ui/icons.tsx';
import { ListTable } from '../../ui/ListTable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { EndUser } from '../connections/EndUser.tsx';
import { type Connection, connectionsQuery } from '../connections/queries.ts';
import { ButtonLink, GuideLink } from '../links.tsx';
import { hasNoEntries } from '../lists.tsx';
import { useEnvironment } from '../shell/environment.ts';

const pageSize = 25;

/** Lists the connections, because records belong to a connection. */
export function RecordsPage() {
  const environment = useEnvironment();
  const { search, page = 0 } = useSearch({ from: '/$environment/records' });
  const navigate = useNavigate({ from: '/$environment/records' });
  const connections = useQuery({
    ...connectionsQuery(environment, { ...(search !== undefined && { search }), limit: pageSize, page }),
    placeholderData: keepPreviousData,
    refetchInterval: 10_000,
  });
  const isEmpty = search === undefined && page === 0 && hasNoEntries(connections, (data) => data.connections);
  return (
    <Page
      title="Records"
      about={
        <>
          The cached records of connections. Choose a connection. <GuideLink to="read-records" />
        </>
      }
      actions={
        <ButtonLink
          variant="default"
          leftSection={<IconHourglassLow size={16} />}
          to="/$environment/records/retention"
          params={{ environment }}
        >
          Retention
        </ButtonLink>
      }
    >
      {!isEmpty && (
        <FilterField
          maw={420}
          aria-label="Search connections"
          placeholder="Account, connection ID or end user"
          leftSection={<IconSearch size={16} />}
          value={search}
          onSettle={(typed) => void navigate({ search: { search: typed, page: undefined }, replace: true })}
        />
      )}
      <Loaded query={connections}>
        {({ connections: found }) => {
          const hasMore = found.length === pageSize;
          if (found.length === 0 && page === 0) {
            return <Empty isFiltered={search !== undefined} />;
          }
          return (
            <Stack>
              <Choices connections={found} />
              {(page > 0 || hasMore) && (
                <Pagination
                  total={page + (hasMore ? 2 : 1)}
                  value={page + 1}
                  onChange={(next) =>
                    void navigate({
                      search: (former) => ({ ...former, page: next > 1 ? next - 1 : undefined }),
                      replace: true,
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

function Choices({ connections }: { connections: Connection[] }) {
  const environment = useEnvironment();
  return (
    <ListTable
      rows={connections}
      keyOf={(connection) => connection.id}
      rowClass="fill-row"
      columns={[
        {
          title: 'Account',
          cell: (connection) => (
            <>
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
              {connection.account?.email != null && (
                <Text size="xs" c="dimmed" ff="monospace" className="wrap">
                  {connection.connection_id}
                </Text>
              )}
              <EndUser of={connection.end_user} />
            </>
          ),
        },
        {
          title: 'Integration',
          cell: (connection) => (
            <Group gap={6}>
              {connection.provider_config_key}
              {connection.test && <Badge color="violet">test</Badge>}
            </Group>
          ),
        },
        {
          title: 'Connected',
          visibleFrom: 'xs',
          cell: (connection) => (
            <Box pos="relative" w="fit-content">
              <RelativeTime at={connection.created} size="sm" />
            </Box>
          ),
        },
      ]}
    />
  );
}

function Empty({ isFiltered }: { isFiltered: boolean }) {
  const environment = useEnvironment();
  const icon = <IconDatabase size={26} />;
  if (isFiltered) {
    return (
      <EmptyState icon={icon} title="No match">
        No connection has this account, ID or end user.
      </EmptyState>
    );
  }
  return (
    <EmptyState
      icon={icon}
      title="Create a connection first"
      action={
        <ButtonLink to="/$environment/connections" params={{ environment }} search={{}}>
          To the connections
        </ButtonLink>
      }
    >
      Each record belongs to a connection. Your connections appear here. <GuideLink to="records" />
    </EmptyState>
  );
}
