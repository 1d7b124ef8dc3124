import { Anchor, Badge, Box, Group, Table, Text, VisuallyHidden } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { useMay } from '../sign-in/queries.ts';
import type { Sync } from './queries.ts';
import { RunBadge, SyncBadge } from './StateBadge.tsx';
import { SyncActs } from './SyncActs.tsx';
import { SyncError } from './SyncError.tsx';
import { spelled } from './words.ts';

/** Syncs of one function by connection. */
export function SyncsTable({ environment, syncs }: { environment: string; syncs: Sync[] }) {
  const mayWrite = useMay()('functions:write');
  return (
    <Table.ScrollContainer minWidth={300} className="framed">
      <Table verticalSpacing="sm" horizontalSpacing="md">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Connection</Table.Th>
            <Table.Th visibleFrom="xs">State</Table.Th>
            <Table.Th visibleFrom="lg">Runs</Table.Th>
            <Table.Th visibleFrom="sm">Next</Table.Th>
            <Table.Th visibleFrom="md">Last run</Table.Th>
            {mayWrite && (
              <Table.Th>
                <VisuallyHidden>Acts</VisuallyHidden>
              </Table.Th>
            )}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {syncs.map((sync) => (
            <Row key={sync.id} sync={sync} environment={environment} mayWrite={mayWrite} />
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function Row({ sync, environment, mayWrite }: { sync: Sync; environment: string; mayWrite: boolean }) {
  const { provider_config_key: integration, connection_id: id, account_email: email, variant } = sync;
  return (
    <Table.Tr>
      <Table.Td maw={{ base: 220, sm: 360 }}>
        <Group gap={6}>
          <Anchor
            size="sm"
            fw={550}
            className="wrap"
            renderRoot={(looks) => (
              <Link
                to="/$environment/connections/$integration/$id"
                params={{ environment, integration, id }}
                {...looks}
              />
            )}
          >
            {email ?? id}
          </Anchor>
          {variant !== 'base' && <Badge color="gray">{variant}</Badge>}
        </Group>
        {email !== null && (
          <Text size="xs" c="dimmed" ff="monospace" className="wrap" visibleFrom="sm">
            {id}
          </Text>
        )}
        <Group hiddenFrom="xs" gap={6} mt={4}>
          <SyncBadge sync={sync} />
        </Group>
        <Text size="sm" hiddenFrom="sm" mt={4}>
          <Text span inherit c="dimmed">
            Next{' '}
          </Text>
          <NextTime sync={sync} />
        </Text>
        <Box hiddenFrom="md" mt={4}>
          <LastRun sync={sync} environment={environment} />
        </Box>
        <SyncError sync={sync} />
      </Table.Td>
      <Table.Td visibleFrom="xs">
        <SyncBadge sync={sync} />
      </Table.Td>
      <Table.Td visibleFrom="lg">
        <Text size="sm">{sync.frequency === null ? '' : spelled(sync.frequency)}</Text>
        {sync.own_frequency !== null && (
          <Text size="xs" c="dimmed">
            of its own
          </Text>
        )}
      </Table.Td>
      <Table.Td visibleFrom="sm" fz="sm" className="unbroken">
        <NextTime sync={sync} />
      </Table.Td>
      <Table.Td visibleFrom="md">
        <LastRun sync={sync} environment={environment} />
      </Table.Td>
      {mayWrite && (
        <Table.Td w={56}>
          <SyncActs
            environment={environment}
            at={{ integration, connection: id, name: sync.function, variant }}
            sync={sync}
          />
        </Table.Td>
      )}
    </Table.Tr>
  );
}

export function NextTime({ sync }: { sync: Pick<Sync, 'state' | 'next_at'> }) {
  return <RelativeTime at={sync.next_at} never={sync.state === 'paused' ? 'when started' : 'not set'} />;
}

/** What runs or ran last, and leads there. */
export function LastRun({
  sync: { current_run: current, last_run: last },
  environment,
}: {
  sync: Pick<Sync, 'current_run' | 'last_run'>;
  environment: string;
}) {
  const shown = current ?? last;
  if (shown === null) {
    return (
      <Text size="sm" c="dimmed">
        never
      </Text>
    );
  }
  return (
    <Group gap={6}>
      <Link
        className="plain-link"
        to="/$environment/functions/runs/$run"
        params={{ environment, run: shown.id }}
        title="To the run"
      >
        <RunBadge state={shown.state} />
      </Link>
      {current === null && last !== null && (
        <Box fz="sm" className="unbroken">
          <RelativeTime at={last.ended_at} />
        </Box>
      )}
    </Group>
  );
}
