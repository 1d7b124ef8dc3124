import { Code, Drawer, Group, Progress, Stack, Table, Text, Title, Tooltip } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Copyable } from '../../ui/Copyable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { duration, Outcome } from './OperationsTable.tsx';
import { type Operation, operationQuery } from './queries.ts';

/** One operation in full, beside the list it was chosen from. */
export function OperationDrawer({
  environment,
  id,
  onClose,
}: {
  environment: string;
  id: string | undefined;
  onClose: () => void;
}) {
  const query = useQuery({ ...operationQuery(environment, id ?? ''), enabled: id !== undefined });
  return (
    <Drawer
      opened={id !== undefined}
      onClose={onClose}
      position="right"
      size="lg"
      title="Operation"
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <Loaded query={query}>{(operation) => <Whole operation={operation} />}</Loaded>
    </Drawer>
  );
}

function Whole({ operation }: { operation: Operation }) {
  const facts: [string, string | number | null][] = [
    ['Integration', operation.provider_config_key],
    ['Connection', operation.connection_id],
    ['Called by', operation.actor],
    ['Requests to the provider', operation.requests],
    ['Retries', operation.retries],
    ['Bytes sent', operation.request_bytes],
    ['Bytes back', operation.answer_bytes],
  ];
  const details = Object.keys(operation.details).length > 0;
  return (
    <Stack>
      <Group gap="xs">
        <Title order={3}>{operation.type}</Title>
        <Outcome operation={operation} />
        <Text size="sm" c="dimmed">
          <RelativeTime at={operation.created_at} />
        </Text>
      </Group>
      {operation.path !== null && (
        <Copyable value={`${operation.method} ${operation.path}`} what="the request" />
      )}
      <Phases operation={operation} />
      <Table layout="fixed">
        <Table.Tbody>
          {facts
            .filter(([, value]) => value !== null)
            .map(([name, value]) => (
              <Table.Tr key={name}>
                <Table.Th w={180} fw={400} c="dimmed">
                  {name}
                </Table.Th>
                <Table.Td className="wrap">
                  {typeof value === 'number' ? value.toLocaleString() : value}
                </Table.Td>
              </Table.Tr>
            ))}
        </Table.Tbody>
      </Table>
      {operation.request_id !== null && (
        <Group gap="xs" wrap="nowrap">
          <Text size="sm" c="dimmed" flex="none">
            Request ID
          </Text>
          <Copyable value={operation.request_id} what="the request ID" />
        </Group>
      )}
      {details && (
        <Code block tabIndex={0}>
          {JSON.stringify(operation.details, null, 2)}
        </Code>
      )}
    </Stack>
  );
}

/** Where the time went, phase by phase. */
function Phases({ operation }: { operation: Operation }) {
  const phases = [
    { name: 'credentials', ms: operation.credentials_ms, color: 'violet' },
    { name: 'quota', ms: operation.quota_ms, color: 'yellow' },
    { name: 'connect', ms: operation.connect_ms, color: 'teal' },
    { name: 'first byte', ms: operation.first_byte_ms, color: 'trellis' },
    { name: 'body', ms: operation.body_ms, color: 'cyan' },
  ].filter((phase): phase is typeof phase & { ms: number } => phase.ms !== null && phase.ms > 0);
  const total = phases.reduce((sum, { ms }) => sum + ms, 0);
  if (total === 0) return null;
  return (
    <Stack gap={6}>
      <Progress.Root size={18}>
        {phases.map(({ name, ms, color }) => (
          <Tooltip key={name} label={`${name}: ${duration(ms)}`}>
            <Progress.Section
              value={(ms / total) * 100}
              color={color}
              aria-label={`${name}: ${duration(ms)}`}
            />
          </Tooltip>
        ))}
      </Progress.Root>
      <Group gap="md">
        {phases.map(({ name, ms, color }) => (
          <Text key={name} size="sm">
            <Text span c={`${color}.6`} aria-hidden>
              ■
            </Text>{' '}
            {name} {duration(ms)}
          </Text>
        ))}
      </Group>
    </Stack>
  );
}
