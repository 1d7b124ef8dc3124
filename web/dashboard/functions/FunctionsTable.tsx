import { Badge, Box, Group, Table, Text } from '@mantine/core';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { FunctionLink } from './FunctionLink.tsx';
import type { ListedFunction } from './queries.ts';
import { RunBadge, TypeBadge } from './StateBadge.tsx';
import { whenOf } from './words.ts';

/** Functions in the order they come; a row leads to the function. */
export function FunctionsTable({
  functions,
  environment,
}: {
  functions: ListedFunction[];
  environment: string;
}) {
  return (
    <Table.ScrollContainer minWidth={300} className="framed">
      <Table verticalSpacing="sm" horizontalSpacing="md">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Function</Table.Th>
            <Table.Th visibleFrom="sm">Integration</Table.Th>
            <Table.Th visibleFrom="md">Runs</Table.Th>
            <Table.Th visibleFrom="lg">Version</Table.Th>
            <Table.Th visibleFrom="xs">Last run</Table.Th>
            <Table.Th visibleFrom="sm" ta="right" title="In the last 24 hours">
              Failures
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {functions.map((one) => (
            <Row key={one.id} of={one} environment={environment} />
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function Row({ of, environment }: { of: ListedFunction; environment: string }) {
  const { name, type, provider_config_key: integration, description, enabled, last_run: last, failures } = of;
  return (
    <Table.Tr className="fill-row">
      <Table.Td maw={420}>
        <Group gap={8}>
          <FunctionLink className="fill-link" environment={environment} at={{ integration, type, name }}>
            <Text span fw={550} size="sm" className="wrap">
              {name}
            </Text>
          </FunctionLink>
          <TypeBadge type={type} />
          {!enabled && <Badge color="gray">Off</Badge>}
        </Group>
        {description !== '' && (
          <Text size="xs" c="dimmed" lineClamp={1} visibleFrom="sm">
            {description}
          </Text>
        )}
        <Text size="xs" c="dimmed" hiddenFrom="sm" className="wrap">
          {integration}
        </Text>
        <Group hiddenFrom="xs" gap={6} mt={4}>
          <LastRun last={last} />
          {failures > 0 && <Failures count={failures} />}
        </Group>
      </Table.Td>
      <Table.Td visibleFrom="sm" maw={200}>
        <Text size="sm" truncate title={integration}>
          {integration}
        </Text>
      </Table.Td>
      <Table.Td visibleFrom="md">
        <Text size="sm">{whenOf(of)}</Text>
      </Table.Td>
      <Table.Td visibleFrom="lg">{of.version}</Table.Td>
      <Table.Td visibleFrom="xs">
        <LastRun last={last} />
      </Table.Td>
      <Table.Td visibleFrom="sm" ta="right">
        {failures > 0 ? <Failures count={failures} /> : '0'}
      </Table.Td>
    </Table.Tr>
  );
}

function LastRun({ last }: { last: ListedFunction['last_run'] }) {
  if (last === null) {
    return (
      <Text size="sm" c="dimmed" className="unbroken">
        never ran
      </Text>
    );
  }
  return (
    <Group gap={6} wrap="nowrap">
      <RunBadge state={last.state} />
      <Box fz="sm" pos="relative" w="fit-content" className="unbroken">
        <RelativeTime at={last.ended_at ?? last.queued_at} />
      </Box>
    </Group>
  );
}

function Failures({ count }: { count: number }) {
  return (
    <Badge color="red" aria-label={`${count.toLocaleString()} failed in 24 hours`}>
      {count >= 1_000 ? '1,000 or more' : count.toLocaleString()}
    </Badge>
  );
}
