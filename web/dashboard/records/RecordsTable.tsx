import { Badge, Box, Table, Text } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { memo, useMemo } from 'react';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { spellSize } from '../../ui/size.ts';
import type { DatasetSearch } from '../search.ts';
import type { Action, BrowsedRecord } from './queries.ts';

/** Records in the order of their latest changes; a row opens the whole of one. */
export function RecordsTable({
  records,
  search,
  isWaiting,
}: {
  records: BrowsedRecord[];
  search: DatasetSearch;
  /** Another page is on its way; these stay in sight until it comes. */
  isWaiting: boolean;
}) {
  return (
    <Table.ScrollContainer minWidth={300} className="framed" opacity={isWaiting ? 0.6 : 1}>
      <Table layout="fixed" verticalSpacing={8} horizontalSpacing="md" aria-busy={isWaiting}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th w={{ base: '60%', xs: '40%', md: '22%' }}>ID</Table.Th>
            <Table.Th w={120}>Last action</Table.Th>
            <Table.Th visibleFrom="md">Payload</Table.Th>
            <Table.Th w={110} ta="right" visibleFrom="sm">
              Size
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
  // Of megabytes it takes a while; another row that is opened does not write it again.
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
      </Table.Td>
      <Table.Td visibleFrom="md">
        <Text size="sm" c="dimmed" ff="monospace" truncate>
          {text?.slice(0, 160)}
        </Text>
      </Table.Td>
      <Table.Td ta="right" visibleFrom="sm" className="unbroken">
        {text === undefined ? <Badge color="yellow">pruned</Badge> : spellSize(new Blob([text]).size)}
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
