import { Stack, Text } from '@mantine/core';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FilterField } from '../../ui/FilterField.tsx';
import { IconDatabase, IconHourglassLow, IconSearch } from '../../ui/icons.tsx';
import { ListTable } from '../../ui/ListTable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { counted, formatSize } from '../../ui/size.ts';
import { accountName, endUserText } from '../connections/EndUser.tsx';
import type { Connection } from '../connections/queries.ts';
import { AnchorLink, ButtonLink, connectionPage, GuideLink } from '../links.tsx';
import { CursorPager, defined, hasNoEntries } from '../lists.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { DatasetLink } from './DatasetsTab.tsx';
import { type ListedDataset, recordsOverviewQuery } from './queries.ts';

const pageSize = 10;

/** The datasets of all connections, newest connections first. */
export function RecordsPage() {
  const environment = useEnvironment();
  const { search, cursor } = useSearch({ from: '/$environment/records' });
  const navigate = useNavigate({ from: '/$environment/records' });
  const connections = useQuery({
    ...recordsOverviewQuery(environment, { ...defined({ search, cursor }), limit: pageSize }),
    placeholderData: keepPreviousData,
    refetchInterval: 10_000,
  });
  const isEmpty =
    search === undefined && cursor === undefined && hasNoEntries(connections, (data) => data.connections);
  return (
    <Page
      title="Records"
      about={
        <>
          The cached records, by connection and dataset. <GuideLink to="read-records" />
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
          onSettle={(typed) => void navigate({ search: { search: typed }, replace: true })}
        />
      )}
      <Loaded query={connections}>
        {({ connections: found, datasets, next_cursor: next }) =>
          found.length === 0 && cursor === undefined ? (
            <Empty isFiltered={search !== undefined} />
          ) : (
            <Stack>
              <Datasets connections={found} datasets={datasets} />
              <CursorPager
                onFirst={
                  cursor === undefined
                    ? undefined
                    : () => void navigate({ search: ({ search }) => defined({ search }), replace: true })
                }
                next={next === null ? undefined : { cursor: next }}
              />
            </Stack>
          )
        }
      </Loaded>
    </Page>
  );
}

/** The list shows so many datasets of a connection; its own page has the others. */
const maxShown = 5;
/** A row for each dataset, and one for a connection without records. */
type Listed = {
  connection: Connection;
  dataset?: ListedDataset;
  /** How many datasets the connection has. */
  total: number;
  /** The first row of the connection, which names its account. */
  isFirst: boolean;
};

function Datasets({ connections, datasets }: { connections: Connection[]; datasets: ListedDataset[] }) {
  const byConnection = Map.groupBy(datasets, ({ connection }) => connection);
  return (
    <ListTable
      rows={connections.flatMap((connection): Listed[] => {
        const all = byConnection.get(connection.id) ?? [];
        const shown = all
          .toSorted((a, b) => Date.parse(b.last_modified_at ?? '0') - Date.parse(a.last_modified_at ?? '0'))
          .slice(0, maxShown);
        const of = { connection, total: all.length, isFirst: true };
        return shown.length === 0
          ? [of]
          : shown.map((dataset, row) => ({ ...of, dataset, isFirst: row === 0 }));
      })}
      keyOf={({ connection, dataset }) => `${connection.id}:${dataset?.model}:${dataset?.variant}`}
      rowClass="fill-row"
      columns={[
        {
          title: 'Account',
          miw: { base: 165, md: 200 },
          cell: ({ connection, total, isFirst }) =>
            isFirst && <Owner connection={connection} total={total} />,
        },
        {
          title: 'Dataset',
          miw: { base: 90, md: 240 },
          cell: ({ connection, dataset }) =>
            dataset === undefined ? (
              <Dimmed>No records</Dimmed>
            ) : (
              <DatasetLink at={atOf(connection)} dataset={dataset} />
            ),
        },
        { title: 'Records', ta: 'right', cell: ({ dataset }) => dataset?.records.toLocaleString() },
        {
          title: 'Pruned',
          ta: 'right',
          visibleFrom: 'md',
          cell: ({ dataset }) => dataset?.pruned.toLocaleString(),
        },
        {
          title: 'Stored, encrypted',
          heading: { className: 'unbroken' },
          ta: 'right',
          visibleFrom: 'xs',
          className: 'unbroken',
          cell: ({ dataset }) => dataset && formatSize(dataset.payload_bytes),
        },
        {
          title: 'Last change',
          visibleFrom: 'sm',
          cell: ({ dataset }) => dataset && <RelativeTime at={dataset.last_modified_at} size="sm" />,
        },
        {
          title: 'Consumers',
          visibleFrom: 'md',
          className: 'wrap',
          cell: ({ dataset }) =>
            dataset?.consumers
              .map(
                ({ name, behind }) =>
                  `${name}: ${behind === 0 ? 'up to date' : `${behind.toLocaleString()} behind`}`,
              )
              .join(', '),
        },
      ]}
    />
  );
}

const atOf = ({ integration_id: integration, connection_id: id }: Connection) => ({ integration, id });

/** The account of a connection, with a link to all its datasets. */
function Owner({ connection, total }: { connection: Connection; total: number }) {
  const environment = useEnvironment();
  const { integration_id: integration, end_user, test } = connection;
  return (
    <>
      <AnchorLink
        className="above wrap"
        size="sm"
        fw={550}
        {...connectionPage(environment, atOf(connection), 'records')}
      >
        {accountName(connection)}
      </AnchorLink>
      <Text size="xs" c="dimmed" className="wrap">
        {[
          integration,
          end_user && `for ${endUserText(end_user)}`,
          test && 'test',
          total > maxShown && counted(total, 'dataset'),
        ]
          .filter(Boolean)
          .join(' · ')}
      </Text>
    </>
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
