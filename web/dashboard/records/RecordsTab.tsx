import { Button, Group, Select, Stack, Text } from '@mantine/core';
import { IconChevronLeft, IconChevronRight, IconDatabase } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import type { DatasetSearch } from '../search.ts';
import { type BrowsedRecord, type DatasetAt, recordsQuery } from './queries.ts';
import { RecordDrawer } from './RecordDrawer.tsx';
import { RecordFilters } from './RecordFilters.tsx';
import { RecordsTable } from './RecordsTable.tsx';
import { idsOf } from './record-ids.ts';

const route = '/$environment/records/of/$integration/$id/$model';
const sizes = [25, 50, 100];
/** An address that is sent to somebody else should not fill a page. */
const maxTrail = 30;

/** A dataset page by page, in the order of the changes; where one is and came from stands in the address. */
export function RecordsTab({
  environment,
  at,
  onPrune,
}: {
  environment: string;
  at: DatasetAt;
  /** Undefined where the user may not prune. */
  onPrune: ((until: BrowsedRecord) => void) | undefined;
}) {
  const search = useSearch({ from: route });
  const navigate = useNavigate({ from: route });
  const size = sizes.find((one) => one === search.size) ?? 50;
  const ids = idsOf(search.ids ?? '');
  const records = useQuery(
    recordsQuery(environment, {
      at,
      limit: String(size),
      ...(search.cursor !== undefined && { cursor: search.cursor }),
      ...(search.action !== undefined && { filter: search.action }),
      ...(search.after !== undefined && { modified_after: search.after }),
      ...(ids.length > 0 && { ids }),
    }),
  );
  const change = (next: Partial<DatasetSearch>) =>
    void navigate({
      search: (former) => ({ ...former, ...firstPage, record: undefined, ...next }),
      replace: true,
    });
  const isFiltered = search.action !== undefined || search.after !== undefined || ids.length > 0;
  const chosen = records.data?.records.find(({ id }) => id === search.record);
  return (
    <Stack>
      <RecordFilters search={search} onChange={change} />
      <Loaded query={records}>
        {({ records: found, nextCursor }) => (
          <Stack>
            {found.length === 0 ? (
              <Empty isFiltered={isFiltered} hasBefore={search.cursor !== undefined} />
            ) : (
              <RecordsTable records={found} search={search} isWaiting={records.isPlaceholderData} />
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
          <Turn label="From the first page" to={{ ...search, ...firstPage }} />
        </Group>
      )}
      <RecordDrawer
        environment={environment}
        at={at}
        id={search.record}
        known={chosen}
        onPrune={onPrune}
        onClose={() => void navigate({ search: (former) => ({ ...former, record: undefined }) })}
      />
    </Stack>
  );
}

const firstPage = { cursor: undefined, trail: undefined, page: undefined };

/** Cursors lead forward alone; back leads the trail of those that were followed. */
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
      <Text size="sm" c="dimmed">
        Page {page.toLocaleString()}
      </Text>
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
    <Button {...look} renderRoot={(props) => <Link from={route} to="." search={to} {...props} />}>
      {label}
    </Button>
  );
}

function Empty({ isFiltered, hasBefore }: { isFiltered: boolean; hasBefore: boolean }) {
  const icon = <IconDatabase size={26} />;
  if (hasBefore) {
    return (
      <EmptyState icon={icon} title="Nothing after this">
        The records of this page have moved on: each that changes goes behind all others.
      </EmptyState>
    );
  }
  return (
    <EmptyState icon={icon} title={isFiltered ? 'Nothing fits' : 'No records'}>
      {isFiltered
        ? 'No record matches these filters.'
        : 'This dataset has settings, but nothing was saved to it yet.'}
    </EmptyState>
  );
}

function joined(cursors: string[]): string | undefined {
  return cursors.length === 0 ? undefined : cursors.join('.');
}
