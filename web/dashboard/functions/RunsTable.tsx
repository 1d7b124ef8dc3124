import { Badge, Box, Group, Table, Text } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { heldText } from './advice.ts';
import type { Run } from './queries.ts';
import { RunBadge } from './StateBadge.tsx';
import { runKinds, spellTime } from './words.ts';

/** Runs in the order they come; a row leads to the run. */
export function RunsTable({
  runs,
  environment,
  isOfOne,
}: {
  runs: Run[];
  environment: string;
  /** All of one function, which need not be named. */
  isOfOne: boolean;
}) {
  return (
    <Table.ScrollContainer minWidth={300} className="framed">
      <Table verticalSpacing={10} horizontalSpacing="md">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>State</Table.Th>
            <Table.Th>{isOfOne ? 'Connection' : 'Function'}</Table.Th>
            <Table.Th visibleFrom="md">Records</Table.Th>
            <Table.Th visibleFrom="sm" ta="right">
              Took
            </Table.Th>
            <Table.Th visibleFrom="lg">Version</Table.Th>
            <Table.Th visibleFrom="xs">When</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {runs.map((run) => (
            <Table.Tr key={run.id} className="fill-row">
              <Table.Td>
                <RunBadge state={run.state} />
              </Table.Td>
              <Table.Td maw={{ base: 200, sm: 320 }}>
                <Group gap={6}>
                  <Link
                    className="fill-link"
                    to="/$environment/functions/runs/$run"
                    params={{ environment, run: run.id }}
                  >
                    <Text span size="sm" fw={550} className="wrap">
                      {isOfOne ? (run.connection_id ?? 'deleted connection') : run.function}
                    </Text>
                  </Link>
                  {run.kind !== 'sync' && (!isOfOne || run.kind === 'webhook') && (
                    <Badge color="gray">{runKinds[run.kind]}</Badge>
                  )}
                  {run.variant !== 'base' && <Badge color="gray">{run.variant}</Badge>}
                </Group>
                {!isOfOne && (
                  <Text size="xs" c="dimmed" className="wrap">
                    {run.provider_config_key} · {run.connection_id ?? 'deleted connection'}
                  </Text>
                )}
                {run.error !== null && (
                  <Text size="xs" c="dimmed" lineClamp={1} className="wrap">
                    {run.error.code === 'mass_delete_held'
                      ? heldText(run.error.message)
                      : `${run.error.code}: ${run.error.message}`}
                  </Text>
                )}
                <Text size="xs" c="dimmed" hiddenFrom="xs">
                  <RelativeTime at={run.queued_at} />
                </Text>
              </Table.Td>
              <Table.Td visibleFrom="md">
                <Text size="sm">{changesOf(run)}</Text>
              </Table.Td>
              <Table.Td visibleFrom="sm" ta="right" className="unbroken">
                {tookOf(run)}
              </Table.Td>
              <Table.Td visibleFrom="lg">{run.version}</Table.Td>
              <Table.Td visibleFrom="xs">
                <Box pos="relative" w="fit-content" className="unbroken">
                  <RelativeTime at={run.queued_at} size="sm" />
                </Box>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function tookOf({ started_at: began, ended_at: ended }: Run): string {
  return began === null || ended === null ? '' : spellTime(Date.parse(ended) - Date.parse(began));
}

/** "12 added, 3 deleted", over all models. */
function changesOf({ counts, kind }: Run): string {
  if (kind === 'action' || kind === 'on-event') return '';
  const all = Object.values(counts);
  const sum = (name: 'added' | 'updated' | 'deleted') => all.reduce((total, one) => total + one[name], 0);
  const parts = (['added', 'updated', 'deleted'] as const)
    .map((name) => [sum(name), name] as const)
    .filter(([count]) => count > 0)
    .map(([count, name]) => `${count.toLocaleString()} ${name}`);
  return parts.length === 0 ? 'no change' : parts.join(', ');
}
