import { Anchor, Badge, Card, Group, Table, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import type { At } from '../connections/queries.ts';
import { type BrowsedRecord, recordsQuery } from '../records/queries.ts';
import { ActionBadge } from '../records/RecordsTable.tsx';
import { Cell } from './PreviewTable.tsx';
import type { CellValue } from './queries.ts';
import { rowModel } from './settings.ts';

const maxShown = 20;
const runningMs = 1_500;
const idleMs = 5_000;

/** Rows of a sheet as the records that an application reads, in the order of their latest changes. */
export function SheetRecords({
  environment,
  at: { variant, ...at },
  isRunning,
}: {
  environment: string;
  at: At & { variant: string };
  isRunning: boolean;
}) {
  const query = useQuery({
    ...recordsQuery(environment, { at: { ...at, model: rowModel, variant }, limit: String(maxShown) }),
    refetchInterval: isRunning ? runningMs : idleMs,
  });
  return (
    <Card component="section" aria-label="Records">
      <Group justify="space-between" mb="xs">
        <Title order={2}>Records</Title>
        <Anchor
          size="sm"
          renderRoot={(props) => (
            <Link
              to="/$environment/records/of/$integration/$id/$model"
              params={{ environment, ...at, model: rowModel }}
              search={{ variant: variant === 'base' ? undefined : variant }}
              {...props}
            />
          )}
        >
          All of them, and pruning
        </Anchor>
      </Group>
      <Loaded query={query} loading={<LoadingRows rows={4} height={36} />}>
        {({ records, nextCursor }) =>
          records.length === 0 ? (
            <Text c="dimmed" size="sm">
              {isRunning ? 'The first rows come in a moment.' : 'No row was read yet.'}
            </Text>
          ) : (
            <>
              <RowsTable records={records} />
              {nextCursor !== null && (
                <Text size="sm" c="dimmed" mt="xs">
                  The first {records.length}, those that changed longest ago.
                </Text>
              )}
            </>
          )
        }
      </Loaded>
    </Card>
  );
}

function RowsTable({ records }: { records: BrowsedRecord[] }) {
  const fields = [...new Set(records.flatMap((record) => Object.keys(cellsOf(record) ?? {})))];
  return (
    <Table.ScrollContainer
      minWidth={Math.max(280, (fields.length + 2) * 120)}
      scrollAreaProps={{ viewportProps: { tabIndex: 0, role: 'region', 'aria-label': 'Rows as records' } }}
    >
      <Table verticalSpacing={6}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>ID</Table.Th>
            {fields.map((field) => (
              <Table.Th key={field} className="wrap">
                {field}
              </Table.Th>
            ))}
            <Table.Th>Last action</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {records.map((record) => (
            <Row key={record.id} record={record} fields={fields} />
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function Row({ record, fields }: { record: BrowsedRecord; fields: string[] }) {
  const cells = cellsOf(record);
  return (
    <Table.Tr>
      <Table.Td maw={160}>
        <Text span size="sm" ff="monospace" className="wrap">
          {record.id}
        </Text>
      </Table.Td>
      {cells === undefined ? (
        <Table.Td colSpan={Math.max(1, fields.length)}>
          <Badge color="yellow">pruned</Badge>
        </Table.Td>
      ) : (
        fields.map((field) => (
          <Table.Td key={field}>
            <Cell value={cells[field] ?? null} />
          </Table.Td>
        ))
      )}
      <Table.Td>
        <ActionBadge action={record.action} />
      </Table.Td>
    </Table.Tr>
  );
}

/** By the headers of the columns; undefined where the record is pruned. */
function cellsOf({ fields: payload }: BrowsedRecord): Record<string, CellValue> | undefined {
  return payload && ((payload.fields ?? {}) as Record<string, CellValue>);
}
