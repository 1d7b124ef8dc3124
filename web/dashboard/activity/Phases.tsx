import { Group, Progress, Stack, Text, Tooltip } from '@mantine/core';
import { duration } from './OperationsTable.tsx';
import type { Operation } from './queries.ts';

type Timed = Pick<Operation, 'credentials_ms' | 'quota_ms' | 'connect_ms' | 'first_byte_ms' | 'body_ms'>;

/** Where the time of a proxied call went, phase by phase; nothing where it is not known. */
export function Phases({ operation }: { operation: Timed }) {
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
    <Stack gap={6} role="group" aria-label="Phases">
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
