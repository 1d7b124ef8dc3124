import { Badge, Stack, Table, Text } from '@mantine/core';
import type { CellValue, PreviewColumn } from './queries.ts';

const colors: Record<string, string> = {
  number: 'trellis',
  boolean: 'violet',
  date: 'teal',
  time: 'teal',
  datetime: 'teal',
  mixed: 'orange',
};

/** The rows of a preview, with the detected type of each column. */
export function PreviewTable({
  columns,
  rows,
  keyColumn,
  isWaiting,
}: {
  columns: PreviewColumn[];
  rows: Record<string, CellValue>[];
  keyColumn: string | undefined;
  /** Another preview is loading; this one stays visible. */
  isWaiting: boolean;
}) {
  return (
    <Table.ScrollContainer
      minWidth={Math.max(280, columns.length * 130)}
      className="framed"
      opacity={isWaiting ? 0.6 : 1}
      scrollAreaProps={{ viewportProps: { tabIndex: 0, role: 'region', 'aria-label': 'The first rows' } }}
    >
      <Table horizontalSpacing="md" aria-busy={isWaiting}>
        <Table.Thead>
          <Table.Tr>
            {columns.map(({ field, column, type }) => (
              <Table.Th key={field} className={field === keyColumn ? 'key-column' : undefined}>
                <Stack gap={4} align="flex-start">
                  <Text size="xs" c="dimmed" fw={400}>
                    {column}
                    {field === keyColumn && ' · key'}
                  </Text>
                  <Text span inherit className="wrap">
                    {field}
                  </Text>
                  <Badge size="sm" color={colors[type] ?? 'gray'}>
                    {type}
                  </Badge>
                </Stack>
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map((row, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: the rows of a preview have no names, and come all at once
            <Table.Tr key={index}>
              {columns.map(({ field }) => (
                <Table.Td key={field} className={field === keyColumn ? 'key-column' : undefined}>
                  <Cell value={row[field] ?? null} />
                </Table.Td>
              ))}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

export function Cell({ value }: { value: CellValue }) {
  if (value === null) {
    return (
      <Text span size="sm" c="dimmed">
        empty
      </Text>
    );
  }
  if (typeof value === 'object') return <Badge color="red">{value.error}</Badge>;
  return (
    <Text span size="sm" lineClamp={2} className="wrap">
      {String(value)}
    </Text>
  );
}
