import {
  Alert,
  Badge,
  Box,
  Button,
  Code,
  Drawer,
  Group,
  MultiSelect,
  Select,
  Stack,
  Table,
  Text,
  TextInput,
  Title,
} from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { memo, type ReactNode, useMemo } from 'react';
import { Copyable } from '../../ui/Copyable.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FilterField } from '../../ui/FilterField.tsx';
import {
  IconChevronLeft,
  IconChevronRight,
  IconDatabase,
  IconDatabaseOff,
  IconScissors,
  IconSearch,
  IconX,
} from '../../ui/icons.tsx';
import { JsonBlock } from '../../ui/JsonBlock.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { localTime } from '../../ui/local-time.ts';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { formatSize } from '../../ui/size.ts';
import { ButtonLink } from '../links.tsx';
import { hasNoEntries } from '../lists.tsx';
import type { DatasetSearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { type Action, type BrowsedRecord, type DatasetAt, recordQuery, recordsQuery } from './queries.ts';
import { idsOf } from './record-ids.ts';

const route = '/$environment/records/of/$integration/$id/$model';
const sizes = [25, 50, 100];
/** Limits the length of the address. */
const maxTrail = 30;

/** The filters of the address, as the API takes them. */
export function filtersOf({ ids = '', action, after }: DatasetSearch) {
  return {
    ...(action !== undefined && { filter: action }),
    ...(after !== undefined && { modified_after: after }),
    ...(idsOf(ids).length > 0 && { ids: idsOf(ids) }),
  };
}

/** A dataset page by page, in the order of changes. The position and the previous pages are in the address. */
export function RecordsTab({
  at,
  onPrune,
  isPruning,
}: {
  at: DatasetAt;
  /** Undefined if the user may not prune. */
  onPrune: ((until: BrowsedRecord) => void) | undefined;
  /** The dialog of a prune is open. */
  isPruning: boolean;
}) {
  const environment = useEnvironment();
  const search = useSearch({ from: route });
  const navigate = useNavigate({ from: route });
  const size = sizes.find((one) => one === search.size) ?? 50;
  const records = useQuery(
    recordsQuery(environment, {
      at,
      limit: String(size),
      ...(search.cursor !== undefined && { cursor: search.cursor }),
      ...filtersOf(search),
    }),
  );
  const change = (next: Partial<DatasetSearch>) =>
    void navigate({
      search: (former) => ({ ...former, ...firstPage, record: undefined, ...next }),
      replace: true,
    });
  const isFiltered = Object.keys(filtersOf(search)).length > 0;
  const isEmpty = !isFiltered && search.cursor === undefined && hasNoEntries(records, (page) => page.records);
  const chosen = records.data?.records.find(({ id }) => id === search.record);
  return (
    <Stack>
      {!isEmpty && <RecordFilters search={search} onChange={change} />}
      <Loaded query={records}>
        {({ records: found, nextCursor }) => (
          <Stack>
            {found.length === 0 ? (
              <Empty isFiltered={isFiltered} hasBefore={search.cursor !== undefined} />
            ) : (
              <>
                {onPrune !== undefined && (
                  <Dimmed>To remove payloads, open a record, then choose Prune up to this record.</Dimmed>
                )}
                <RecordsTable records={found} search={search} isWaiting={records.isPlaceholderData} />
              </>
            )}
            <Group justify="space-between">
              <Select
                aria-label="Records a page"
                w={140}
                allowDeselect={false}
                data={sizes.map((one) => ({ value: String(one), label: `${one} a page` }))}
                value={String(size)}
                onChange={(value) => change({ size: value === '50' ? undefined : Number(value) })}
              />
              <Turns search={search} nextCursor={nextCursor} />
            </Group>
          </Stack>
        )}
      </Loaded>
      {records.isError && search.cursor !== undefined && (
        <Group>
          <Turn label="Go to the first page" to={{ ...search, ...firstPage }} />
        </Group>
      )}
      <RecordDrawer
        at={at}
        id={search.record}
        known={chosen}
        onPrune={onPrune}
        isPruning={isPruning}
        onClose={() =>
          void navigate({ search: (former) => ({ ...former, record: undefined }), replace: true })
        }
      />
    </Stack>
  );
}

const firstPage = { cursor: undefined, trail: undefined, page: undefined };

/** Cursors only lead forward; the way back is the trail of used cursors. */
function Turns({ search, nextCursor }: { search: DatasetSearch; nextCursor: string | null }) {
  const { page = 1, cursor } = search;
  const trail = search.trail?.split('.') ?? [];
  const back =
    page === 2 ? firstPage : { cursor: trail.at(-1), trail: joined(trail.slice(0, -1)), page: page - 1 };
  const canGoBack = page === 2 || (page > 2 && trail.length > 0);
  const forward =
    nextCursor === null
      ? undefined
      : {
          cursor: nextCursor,
          trail: cursor === undefined ? undefined : joined([...trail, cursor].slice(-maxTrail)),
          page: page + 1,
        };
  return (
    <Group gap="xs">
      <Dimmed>Page {page.toLocaleString()}</Dimmed>
      {page > 2 && <Turn label="First" to={{ ...search, ...firstPage }} />}
      <Turn
        label="Previous"
        icon={<IconChevronLeft size={16} />}
        to={canGoBack ? { ...search, ...back, record: undefined } : undefined}
      />
      <Turn
        label="Next"
        after={<IconChevronRight size={16} />}
        to={forward && { ...search, ...forward, record: undefined }}
      />
    </Group>
  );
}

function Turn({
  label,
  icon,
  after,
  to,
}: {
  label: string;
  icon?: ReactNode;
  after?: ReactNode;
  to: DatasetSearch | undefined;
}) {
  const look = { variant: 'default', leftSection: icon, rightSection: after } as const;
  if (to === undefined) {
    return (
      <Button {...look} disabled>
        {label}
      </Button>
    );
  }
  return (
    <ButtonLink {...look} from={route} to="." search={to} replace>
      {label}
    </ButtonLink>
  );
}

function Empty({ isFiltered, hasBefore }: { isFiltered: boolean; hasBefore: boolean }) {
  const icon = <IconDatabase size={26} />;
  if (hasBefore) {
    return (
      <EmptyState icon={icon} title="No more records">
        The records of this page have changed since, and moved to the end of the dataset.
      </EmptyState>
    );
  }
  return (
    <EmptyState icon={icon} title={isFiltered ? 'No match' : 'No records'}>
      {isFiltered
        ? 'No record matches these filters.'
        : 'This dataset has settings, but no records were saved yet.'}
    </EmptyState>
  );
}

function joined(cursors: string[]): string | undefined {
  return cursors.length === 0 ? undefined : cursors.join('.');
}

const actions = [
  { value: 'added', label: 'Added' },
  { value: 'updated', label: 'Updated' },
  { value: 'deleted', label: 'Deleted' },
];

/** The filters of the records of a dataset. */
function RecordFilters({
  search,
  onChange,
}: {
  search: DatasetSearch;
  onChange: (next: Partial<DatasetSearch>) => void;
}) {
  const isFiltered = [search.ids, search.action, search.after].some((one) => one !== undefined);
  return (
    <Group gap="xs" align="flex-end">
      <FilterField
        flex="1 1 220px"
        maw={{ sm: 420 }}
        label="Record IDs"
        placeholder="7, 8, 9"
        leftSection={<IconSearch size={16} />}
        value={search.ids}
        onSettle={(ids) => onChange({ ids })}
      />
      <MultiSelect
        flex="1 1 180px"
        maw={{ sm: 300 }}
        label="Last action"
        placeholder={search.action === undefined ? 'Any' : ''}
        data={actions}
        value={search.action?.split(',') ?? []}
        onChange={(chosen) => onChange({ action: chosen.length === 0 ? undefined : chosen.join(',') })}
      />
      <TextInput
        flex="1 1 180px"
        maw={{ sm: 240 }}
        type="datetime-local"
        label="Changed at or after"
        value={localTime(search.after)}
        onChange={({ currentTarget: { value } }) =>
          onChange({ after: value === '' ? undefined : new Date(value).toISOString() })
        }
      />
      {isFiltered && (
        <Button
          variant="subtle"
          leftSection={<IconX size={16} />}
          onClick={() => onChange({ ids: undefined, action: undefined, after: undefined })}
        >
          Clear
        </Button>
      )}
    </Group>
  );
}

/** Records in the order of their latest changes. Each row opens the record. */
function RecordsTable({
  records,
  search,
  isWaiting,
}: {
  records: BrowsedRecord[];
  search: DatasetSearch;
  /** Another page is loading; the current one stays visible. */
  isWaiting: boolean;
}) {
  return (
    <Table.ScrollContainer minWidth={300} className="framed" opacity={isWaiting ? 0.6 : 1}>
      <Table layout="fixed" horizontalSpacing="md" aria-busy={isWaiting}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th w={{ base: '60%', xs: '40%', md: '22%' }}>ID</Table.Th>
            <Table.Th w={120}>Last action</Table.Th>
            <Table.Th visibleFrom="md">Payload</Table.Th>
            <Table.Th w={110} ta="right" visibleFrom="sm">
              JSON size
            </Table.Th>
            <Table.Th w={160} visibleFrom="xs">
              Changed
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {records.map((record) => (
            <Row key={record.id} record={record} search={search} />
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

const Row = memo(function Row({ record, search }: { record: BrowsedRecord; search: DatasetSearch }) {
  // Serializing megabytes takes time, so it is not repeated when another row is opened.
  const text = useMemo(() => record.fields && JSON.stringify(record.fields), [record.fields]);
  return (
    <Table.Tr className="fill-row">
      <Table.Td>
        <Link
          className="fill-link"
          from="/$environment/records/of/$integration/$id/$model"
          to="."
          search={{ ...search, record: record.id }}
          resetScroll={false}
        >
          <Text span ff="monospace" size="sm" className="wrap">
            {record.id}
          </Text>
        </Link>
      </Table.Td>
      <Table.Td>
        <ActionBadge action={record.action} />
        {text === undefined && (
          <Badge color="yellow" hiddenFrom="sm">
            pruned
          </Badge>
        )}
      </Table.Td>
      <Table.Td visibleFrom="md">
        <Dimmed ff="monospace" truncate>
          {text?.slice(0, 160)}
        </Dimmed>
      </Table.Td>
      <Table.Td ta="right" visibleFrom="sm" className="unbroken">
        {text === undefined ? <Badge color="yellow">pruned</Badge> : formatSize(new Blob([text]).size)}
      </Table.Td>
      <Table.Td visibleFrom="xs">
        <Box pos="relative" w="fit-content">
          <RelativeTime at={record.lastModifiedAt} size="sm" />
        </Box>
      </Table.Td>
    </Table.Tr>
  );
});

const looks: Record<Action, { color: string; label: string }> = {
  ADDED: { color: 'green', label: 'added' },
  UPDATED: { color: 'trellis', label: 'updated' },
  DELETED: { color: 'red', label: 'deleted' },
};

export function ActionBadge({ action }: { action: Action }) {
  const { color, label } = looks[action];
  return <Badge color={color}>{label}</Badge>;
}

/** One record in full, beside the list. */
function RecordDrawer({
  at,
  id,
  known,
  onPrune,
  isPruning,
  onClose,
}: {
  at: DatasetAt;
  id: string | undefined;
  /** The record from the list, shown immediately. */
  known: BrowsedRecord | undefined;
  onPrune: ((until: BrowsedRecord) => void) | undefined;
  isPruning: boolean;
  onClose: () => void;
}) {
  const environment = useEnvironment();
  const query = useQuery({
    ...recordQuery(environment, { at, record: id ?? '' }),
    enabled: id !== undefined,
    placeholderData: () => known,
  });
  return (
    // Escape reaches each open dialog. It closes only the upper one.
    <Drawer opened={id !== undefined} onClose={onClose} title="Record" closeOnEscape={!isPruning}>
      <Loaded query={query}>
        {(record) =>
          record === null ? (
            <Text c="dimmed">No record has this ID.</Text>
          ) : (
            <Whole record={record} isWhole={!query.isPlaceholderData} onPrune={onPrune} />
          )
        }
      </Loaded>
    </Drawer>
  );
}

function Whole({
  record,
  isWhole,
  onPrune,
}: {
  record: BrowsedRecord;
  /** Whether the changes of the last update are loaded. */
  isWhole: boolean;
  onPrune: ((until: BrowsedRecord) => void) | undefined;
}) {
  return (
    <Stack>
      <Group gap="xs">
        <Title order={3} className="wrap">
          {record.id}
        </Title>
        <ActionBadge action={record.action} />
        {record.prunedAt !== null && <Badge color="yellow">pruned</Badge>}
      </Group>
      <Table layout="fixed">
        <Table.Tbody>
          <Fact name="First saved">
            <RelativeTime at={record.firstSeenAt} />
          </Fact>
          <Fact name="Last changed">
            <RelativeTime at={record.lastModifiedAt} />
          </Fact>
          {record.deletedAt !== null && (
            <Fact name="Deleted">
              <RelativeTime at={record.deletedAt} />
            </Fact>
          )}
          {record.prunedAt !== null && (
            <Fact name="Pruned">
              <RelativeTime at={record.prunedAt} />
            </Fact>
          )}
          <Fact name="Cursor">
            <Copyable value={record.cursor} what="the cursor" />
          </Fact>
        </Table.Tbody>
      </Table>
      {isWhole && record.action === 'UPDATED' && record.prunedAt === null && (
        <ChangedFields record={record} />
      )}
      <Stack gap="xs">
        <Title order={3}>Payload</Title>
        {record.fields === undefined ? (
          <Alert color="yellow" icon={<IconDatabaseOff size={18} />} title="Pruned">
            The payload was removed. Save the record again to restore it.
          </Alert>
        ) : (
          <JsonBlock value={{ id: record.id, ...record.fields }} what="the record" />
        )}
      </Stack>
      {onPrune !== undefined && record.prunedAt === null && (
        <Button
          variant="default"
          leftSection={<IconScissors size={16} />}
          onClick={() => onPrune(record)}
          w="fit-content"
        >
          Prune up to this record
        </Button>
      )}
    </Stack>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <Table.Tr>
      <Table.Th w={130} fw={400} c="dimmed">
        {name}
      </Table.Th>
      <Table.Td className="wrap">{children}</Table.Td>
    </Table.Tr>
  );
}

/** Longer values are truncated here; the payload below is complete. */
const maxLength = 300;

/** The fields of the last change, with their previous values if these were kept. */
function ChangedFields({ record: { changes, fields = {} } }: { record: BrowsedRecord }) {
  return (
    <Stack gap="xs">
      <Title order={3}>Last change</Title>
      {changes === null ? (
        <Dimmed>
          Unknown. If the dataset keeps previous payloads (see its settings), the next change is shown here
          with its values.
        </Dimmed>
      ) : changes.previous === null ? (
        <Group gap={4}>
          {changes.fields.map((name) => (
            <Badge key={name} color="gray">
              {name}
            </Badge>
          ))}
        </Group>
      ) : (
        <Table.ScrollContainer minWidth={340} className="framed">
          <Table layout="fixed">
            <Table.Thead>
              <Table.Tr>
                <Table.Th w="26%">Field</Table.Th>
                <Table.Th>Before</Table.Th>
                <Table.Th>Now</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {changes.fields.map((name) => (
                <Table.Tr key={name}>
                  <Table.Td className="wrap">{name}</Table.Td>
                  <Table.Td>
                    <Value of={changes.previous} name={name} color="var(--mantine-color-red-light)" />
                  </Table.Td>
                  <Table.Td>
                    <Value of={fields} name={name} color="var(--mantine-color-green-light)" />
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      )}
    </Stack>
  );
}

function Value({ of, name, color }: { of: Record<string, unknown> | null; name: string; color: string }) {
  if (of === null || !Object.hasOwn(of, name)) {
    return <Dimmed>absent</Dimmed>;
  }
  const text = JSON.stringify(of[name]);
  return (
    <Code bg={color} className="wrap">
      {text.length > maxLength ? `${text.slice(0, maxLength)}…` : text}
    </Code>
  );
}
