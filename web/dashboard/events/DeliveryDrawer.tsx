import { Alert, Button, Code, Drawer, Group, Stack, Table, Text, Title } from '@mantine/core';
import { IconRepeat } from '@tabler/icons-react';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Copyable } from '../../ui/Copyable.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { JsonBlock } from '../../ui/JsonBlock.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { useMayWrite } from '../sign-in/queries.ts';
import { StatusBadge } from './DeliveriesTab.tsx';
import { deliveryQuery, type Endpoint, replayDelivery, type WholeDelivery } from './queries.ts';
import { failureOf } from './words.ts';

/** One delivery in full: what was sent, and what came of it. */
export function DeliveryDrawer({
  environment,
  id,
  endpoints,
  onClose,
}: {
  environment: string;
  id: number | undefined;
  endpoints: Endpoint[];
  onClose: () => void;
}) {
  const query = useQuery({ ...deliveryQuery(environment, id ?? 0), enabled: id !== undefined });
  return (
    <Drawer opened={id !== undefined} onClose={onClose} title="Delivery">
      <Loaded query={query}>
        {(delivery) => (
          <Whole
            environment={environment}
            delivery={delivery}
            endpoint={endpoints.find((one) => one.id === delivery.endpoint)}
          />
        )}
      </Loaded>
    </Drawer>
  );
}

function Whole({
  environment,
  delivery,
  endpoint,
}: {
  environment: string;
  delivery: WholeDelivery;
  endpoint: Endpoint | undefined;
}) {
  const queries = useQueryClient();
  const mayWrite = useMayWrite();
  const again = useMutation({
    mutationFn: () => replayDelivery(environment, delivery.id),
    onSuccess: () => queries.invalidateQueries({ queryKey: [environment, 'deliveries'] }),
  });
  const attempt = delivery.last_attempt;
  const isFailed = attempt !== null && attempt.error !== undefined;
  const facts: [string, ReactNode][] = [
    ['Endpoint', endpoint?.url ?? delivery.endpoint],
    ['Connection', delivery.connection_id],
    ['Integration', delivery.provider_config_key],
    ['Queued', <RelativeTime key="queued" at={delivery.queued_at} />],
    ['Attempts', delivery.attempts],
    ...(delivery.settled_at === null
      ? []
      : [['Settled', <RelativeTime key="settled" at={delivery.settled_at} />] as [string, ReactNode]]),
  ];
  return (
    <Stack>
      <Group gap="xs">
        <Title order={3} className="wrap">
          {delivery.event.type}
        </Title>
        <StatusBadge delivery={delivery} />
      </Group>
      <Table layout="fixed">
        <Table.Tbody>
          {facts
            .filter(([, value]) => value !== null)
            .map(([name, value]) => (
              <Table.Tr key={name}>
                <Table.Th w={120} fw={400} c="dimmed">
                  {name}
                </Table.Th>
                <Table.Td className="wrap">{value}</Table.Td>
              </Table.Tr>
            ))}
        </Table.Tbody>
      </Table>
      {attempt !== null && (
        <Stack gap="xs">
          <Title order={3}>Last attempt</Title>
          <Text size="sm">
            <RelativeTime at={String(attempt.at)} />
            {typeof attempt.duration_ms === 'number' && `, took ${Math.round(attempt.duration_ms)} ms`}
            {typeof attempt.http_status === 'number' && `, answered ${attempt.http_status}`}.
          </Text>
          {isFailed && <Alert color="orange">{failureOf(attempt)}</Alert>}
          {typeof attempt.answer === 'string' && attempt.answer !== '' && (
            <>
              <Text size="sm" c="dimmed">
                The beginning of its answer
              </Text>
              <Code block tabIndex={0} className="broken">
                {attempt.answer}
              </Code>
            </>
          )}
        </Stack>
      )}
      {mayWrite && (
        <Stack gap="xs">
          {again.isError && <FaultNotice error={again.error} />}
          <Group gap="sm">
            <Button
              variant="default"
              leftSection={<IconRepeat size={16} />}
              loading={again.isPending}
              disabled={delivery.status === 'waiting'}
              onClick={() => again.mutate()}
            >
              Send again
            </Button>
            {delivery.status === 'waiting' && (
              <Text size="sm" c="dimmed" flex="1 1 200px">
                It is tried by itself until it arrives, for three days.
              </Text>
            )}
          </Group>
        </Stack>
      )}
      <Stack gap="xs">
        <Title order={3}>Event</Title>
        <Group gap="xs" wrap="nowrap">
          <Text size="sm" c="dimmed" flex="none">
            webhook-id
          </Text>
          <Copyable value={delivery.event.id} what="the webhook-id" />
        </Group>
        {endpoint !== undefined && endpoint.kind !== 'events' && (
          <Text size="sm" c="dimmed">
            This address gets the body that official clients know. What it is made of:
          </Text>
        )}
        <JsonBlock value={delivery.event} what="the event" />
      </Stack>
    </Stack>
  );
}
