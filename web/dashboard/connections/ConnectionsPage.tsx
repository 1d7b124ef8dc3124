import { Badge, Button, Checkbox, Group, Stack, Text } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { IconPlugConnected, IconPlus } from '../../ui/icons.tsx';
import { ListTable } from '../../ui/ListTable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { NumberedPages } from '../../ui/NumberedPages.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { ExportMenu } from '../ExportMenu.tsx';
import { integrationsQuery } from '../integrations/queries.ts';
import { ButtonLink, connectionPage, GuideLink } from '../links.tsx';
import { defined, type Filter, FilterBar, hasNoEntries, NoMatch } from '../lists.tsx';
import { activeStates, type ConnectionsSearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { BulkActs } from './BulkActs.tsx';
import { ConnectDialog } from './ConnectDialog.tsx';
import { accountName, EndUser } from './EndUser.tsx';
import { HealthBadge, states } from './HealthBadge.tsx';
import { type Connection, connectionsQuery, exportConnections } from './queries.ts';

const pageSize = 50;

const filters: (Filter<ConnectionsSearch> | 'integration')[] = [
  { name: 'search', label: 'Search connections', placeholder: 'ID, e-mail or end user' },
  'integration',
  {
    name: 'status',
    label: 'Status',
    placeholder: 'Every status',
    options: [
      { value: 'needs_reauth', label: 'Reconnect needed' },
      { value: 'blocked', label: 'Blocked' },
      { value: 'active', label: 'Active' },
      ...activeStates.map((value) => ({ value, label: states[value].word })),
    ],
  },
  {
    name: 'syncs',
    label: 'Syncs',
    placeholder: 'Every sync state',
    options: [{ value: 'failing', label: 'Failing syncs' }],
  },
  { name: 'tag', label: 'Tag', placeholder: 'Tag: name=value' },
  {
    name: 'sort',
    label: 'Order',
    byDefault: 'created',
    options: [
      { value: 'created', label: 'Newest first' },
      { value: 'last_used', label: 'Last used first' },
    ],
  },
];

/** A status, or the state of an active connection. */
function statusQuery(status: ConnectionsSearch['status']) {
  const state = activeStates.find((one) => one === status);
  return state === undefined ? defined({ status }) : { state };
}

export function ConnectionsPage() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const search = useSearch({ from: '/$environment/connections' });
  const navigate = useNavigate({ from: '/$environment/connections' });
  const [isOpen, { open, close }] = useDisclosure();
  const [selected, setSelected] = useState<ReadonlySet<number>>(new Set());
  const { data: integrations = [] } = useQuery(integrationsQuery(environment));
  const page = search.page ?? 0;
  const [, tag, value] = /^\s*([^=]*[^=\s])\s*=\s*(.+)$/.exec(search.tag ?? '') ?? [];
  const tagQuery = tag !== undefined && { [`tags[${tag}]`]: value };
  const chosen = {
    ...defined({ search: search.search, integration_id: search.integration }),
    ...statusQuery(search.status),
    ...defined({ syncs: search.syncs }),
    ...tagQuery,
  };
  const connections = useQuery({
    ...connectionsQuery(environment, {
      ...chosen,
      ...defined({ sort: search.sort }),
      count: 'true',
      limit: pageSize,
      page,
    }),
    placeholderData: keepPreviousData,
    refetchInterval: 5_000,
  });
  const change = (next: Partial<ConnectionsSearch>) => {
    setSelected(new Set());
    void navigate({ search: (former) => ({ ...former, page: undefined, ...next }), replace: true });
  };
  const isFiltered =
    search.search !== undefined ||
    search.integration !== undefined ||
    search.status !== undefined ||
    search.syncs !== undefined ||
    tag !== undefined;
  return (
    <Page
      title="Connections"
      about={
        <>
          The accounts of your users, each with the credentials to call its provider.{' '}
          <GuideLink to="connections" />
        </>
      }
      actions={
        <>
          <ButtonLink
            variant="default"
            to="/$environment/connections/links"
            params={{ environment }}
            search={{}}
          >
            Connect links
          </ButtonLink>
          {connections.data !== undefined && connections.data.connections.length > 0 && (
            <ExportMenu
              name="connections"
              start={(format) => exportConnections(environment, chosen, format)}
            />
          )}
          {mayWrite && integrations.length > 0 && (
            <Button leftSection={<IconPlus size={16} />} onClick={open}>
              Connect an account
            </Button>
          )}
        </>
      }
    >
      <FilterBar
        search={search}
        filters={filters}
        isEmpty={page === 0 && hasNoEntries(connections, (data) => data.connections)}
        onChange={change}
      >
        {search.tag !== undefined && tag === undefined && (
          <Text size="sm" c="var(--mantine-color-error)" role="status">
            Write a tag as name=value.
          </Text>
        )}
        {mayWrite && (
          <BulkActs
            shown={connections.data?.connections ?? []}
            selected={selected}
            onClear={() => setSelected(new Set())}
          />
        )}
      </FilterBar>
      <Loaded query={connections}>
        {({ connections: found, total = 0 }) =>
          found.length === 0 && page === 0 ? (
            <Empty
              isFiltered={isFiltered}
              hasIntegration={integrations.length > 0}
              onAdd={mayWrite ? open : undefined}
              onClear={() => void navigate({ search: {}, replace: true })}
            />
          ) : (
            <Stack>
              <ConnectionsTable
                connections={found}
                selection={mayWrite ? { selected, onChange: setSelected } : undefined}
              />
              <NumberedPages
                page={page}
                size={pageSize}
                shown={found.length}
                total={total}
                onPage={(next) => change({ page: next || undefined })}
              />
            </Stack>
          )
        }
      </Loaded>
      <ConnectDialog isOpen={isOpen} onClose={close} />
    </Page>
  );
}

function Empty({
  isFiltered,
  hasIntegration,
  onAdd,
  onClear,
}: {
  isFiltered: boolean;
  hasIntegration: boolean;
  onAdd: (() => void) | undefined;
  onClear: () => void;
}) {
  const environment = useEnvironment();
  const icon = <IconPlugConnected size={26} />;
  if (isFiltered) {
    return (
      <NoMatch icon={icon} onClear={onClear}>
        No connection matches these filters.
      </NoMatch>
    );
  }
  const add = hasIntegration ? (
    <Button onClick={onAdd}>Connect an account</Button>
  ) : (
    <ButtonLink to="/$environment/integrations/new" params={{ environment }}>
      Add an integration
    </ButtonLink>
  );
  return (
    <EmptyState
      icon={icon}
      title={hasIntegration ? 'No connection yet' : 'Add an integration first'}
      action={onAdd && add}
    >
      {hasIntegration ? (
        <>
          Connect an account yourself, or create a connect link for a user of your application with{' '}
          <code>POST /connect/sessions</code>. <GuideLink to="connect-page" />
        </>
      ) : (
        <>
          Each connection belongs to an integration. With test credentials, an integration works immediately.{' '}
          <GuideLink to="integrations" />
        </>
      )}
    </EmptyState>
  );
}

type Selection = { selected: ReadonlySet<number>; onChange: (next: ReadonlySet<number>) => void };

/** A list of connections. Each row is a link to the connection. Those on the page can be selected. */
export function ConnectionsTable({
  connections,
  selection,
  isOfIntegration = false,
}: {
  connections: Connection[];
  /** All are of one integration, which is not shown. */
  isOfIntegration?: boolean;
  /** Undefined if no connection can be selected. */
  selection?: Selection | undefined;
}) {
  const environment = useEnvironment();
  return (
    <ListTable
      rows={connections}
      keyOf={({ id }) => id}
      rowClass="fill-row"
      columns={[
        selection !== undefined && selectColumn(connections, selection),
        {
          title: 'Account',
          cell: (connection) => {
            const { connection_id: id, integration_id: integration, end_user, health } = connection;
            return (
              <>
                <Group gap="0 8px">
                  <Link className="fill-link" {...connectionPage(environment, { integration, id })}>
                    <Text span fw={550} size="sm" className="wrap">
                      {accountName(connection)}
                    </Text>
                  </Link>
                  <EndUser of={end_user} />
                </Group>
                <Group hiddenFrom="xs" gap={6} mt={4}>
                  <HealthBadge health={health} />
                  <Text size="xs" c="dimmed">
                    {integration}
                  </Text>
                </Group>
              </>
            );
          },
        },
        {
          title: 'Connection ID',
          visibleFrom: 'xl',
          maw: 130,
          cell: ({ connection_id: id }) => (
            <Text size="xs" ff="monospace" truncate title={id}>
              {id}
            </Text>
          ),
        },
        { title: 'Status', visibleFrom: 'xs', cell: ({ health }) => <HealthBadge health={health} /> },
        !isOfIntegration && {
          title: 'Integration',
          visibleFrom: 'sm',
          cell: ({ integration_id: integration, test }) => (
            <Group gap={6} wrap="nowrap">
              {integration}
              {test && (
                <Badge color="violet" flex="none">
                  test
                </Badge>
              )}
            </Group>
          ),
        },
        {
          title: 'Age',
          visibleFrom: 'xs',
          cell: ({ created }) => <RelativeTime at={created} size="sm" className="above" />,
        },
        {
          title: 'Last used',
          visibleFrom: 'md',
          cell: ({ last_used_at: at }) => <RelativeTime at={at} size="sm" className="above" />,
        },
      ]}
    />
  );
}

function selectColumn(connections: Connection[], { selected, onChange }: Selection) {
  const shown = connections.filter(({ id }) => selected.has(id)).length;
  const isAll = shown === connections.length;
  return {
    title: (
      <Checkbox
        aria-label="Select all connections of this page"
        checked={isAll}
        indeterminate={shown > 0 && !isAll}
        onChange={() => onChange(new Set(isAll ? [] : connections.map(({ id }) => id)))}
      />
    ),
    w: 1,
    cell: (connection: Connection) => (
      <Checkbox
        className="above"
        aria-label={`Select ${accountName(connection)}`}
        checked={selected.has(connection.id)}
        onChange={() => onChange(selected.symmetricDifference(new Set([connection.id])))}
      />
    ),
  };
}
