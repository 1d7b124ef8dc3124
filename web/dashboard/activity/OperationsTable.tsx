import { Badge, Box, Group, Table, Text } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import type { ActivitySearch } from '../search.ts';
import type { Operation } from './queries.ts';

/** Operations, newest first; a row leads to the whole of it and keeps the filters. */
export function OperationsTable({
  operations,
  environment,
  search = {},
}: {
  operations: Operation[];
  environment: string;
  search?: ActivitySearch;
}) {
  return (
    <Table.ScrollContainer minWidth={300} className="framed">
      <Table verticalSpacing={10} horizontalSpacing="md">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Outcome</Table.Th>
            <Table.Th>What</Table.Th>
            <Table.Th ta="right" visibleFrom="sm">
              Took
            </Table.Th>
            <Table.Th visibleFrom="md">Connection</Table.Th>
            <Table.Th>When</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {operations.map((operation) => (
            <Table.Tr key={operation.id} className="fill-row">
              <Table.Td>
                <Outcome operation={operation} />
                <Text
                  size="xs"
                  c="dimmed"
                  truncate
                  maw={{ base: 96, lg: 168 }}
                  title={operation.error_code ?? undefined}
                >
                  {operation.error_code}
                </Text>
              </Table.Td>
              {/* It has what the others leave. */}
              <Table.Td w="100%" maw={0} miw={{ base: 110, xs: 200 }}>
                <Link
                  className="fill-link"
                  to="/$environment/activity"
                  params={{ environment }}
                  search={{ ...search, operation: operation.id }}
                >
                  <What operation={operation} />
                </Link>
              </Table.Td>
              <Table.Td ta="right" visibleFrom="sm" className="unbroken">
                {operation.duration_ms === null ? '' : duration(operation.duration_ms)}
              </Table.Td>
              <Table.Td maw={200} visibleFrom="md">
                <Text size="sm" truncate title={operation.connection_id ?? undefined}>
                  {operation.connection_id}
                </Text>
              </Table.Td>
              <Table.Td className="unbroken">
                <Box pos="relative" w="fit-content">
                  <RelativeTime at={operation.created_at} size="sm" />
                </Box>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function What({ operation }: { operation: Operation }) {
  return (
    <Group gap={6} miw={0}>
      <Badge color="gray" flex="none">
        {operation.type}
      </Badge>
      {operation.path !== null && (
        <Text
          size="sm"
          ff="monospace"
          truncate
          flex="1 1 120px"
          title={`${operation.method} ${operation.path}`}
        >
          {operation.method} {operation.path}
        </Text>
      )}
    </Group>
  );
}

export function Outcome({ operation }: { operation: Operation }) {
  const { status, http_status: httpStatus } = operation;
  const isGood = status === 'success';
  return (
    <Badge color={isGood ? 'green' : 'red'} miw="max-content">
      {httpStatus ?? (isGood ? 'success' : 'failed')}
    </Badge>
  );
}

/** "412 ms", "1.2 s". */
export function duration(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
