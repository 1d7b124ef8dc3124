import { Alert, Badge, Box, Button, Code, Drawer, Group, Stack, Table, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { type ReactNode, useState } from 'react';
import { Copyable } from '../../ui/Copyable.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { IconRepeat, IconTruckDelivery } from '../../ui/icons.tsx';
import { JsonBlock } from '../../ui/JsonBlock.tsx';
import { ListTable } from '../../ui/ListTable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { useFocusIfLost } from '../../ui/use-focus-if-lost.ts';
import { CursorPager, defined, FilterBar, hasNoEntries } from '../lists.tsx';
import type { EventsSearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { useChange } from '../use-change.ts';
import {
  type Delivery,
  deliveriesQuery,
  deliveryQuery,
  type Endpoint,
  endpointsQuery,
  replayDelivery,
  typesQuery,
  type WholeDelivery,
} from './queries.ts';
import { ReplayDialog } from './ReplayDialog.tsx';
import { failureOf, hostOf } from './words.ts';

const statuses = {
  waiting: { label: 'Waiting', color: 'yellow' },
  delivered: { label: 'Delivered', color: 'green' },
  dead: { label: 'Dead', color: 'red' },
} as const;
const statusOptions = Object.entries(statuses).map(([value, { label }]) => ({ value, label }));

export function DeliveriesTab() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const search = useSearch({ from: '/$environment/events' });
  const navigate = useNavigate({ from: '/$environment/events' });
  const [replays, setReplays] = useState(false);
  const { data } = useQuery(endpointsQuery(environment));
  const endpoints = data?.endpoints ?? [];
  const { data: types = [] } = useQuery(typesQuery(environment));
  const { endpoint, status, type, before } = search;
  const deliveries = useQuery(
    deliveriesQuery(environment, {
      limit: 50,
      ...defined({ endpoint, status, type: type as Delivery['event']['type'] as never, before }),
    }),
  );
  const change = (next: Partial<EventsSearch>) =>
    void navigate({ search: (former) => ({ ...former, before: undefined, ...next }), replace: true });
  const isFiltered = endpoint !== undefined || status !== undefined || type !== undefined;
  // A replay uses the endpoint of the filter.
  const replayable = endpoints.filter(({ id }) => endpoint === undefined || id === endpoint);
  return (
    <Stack>
      <FilterBar
        search={search}
        filters={[
          {
            name: 'endpoint',
            label: 'Endpoint',
            placeholder: 'Every endpoint',
            options: endpoints.map(({ id, url }) => ({ value: String(id), label: url })),
            isNumber: true,
          },
          { name: 'status', label: 'Status', placeholder: 'Every status', options: statusOptions },
          {
            name: 'type',
            label: 'Type',
            placeholder: 'Every type',
            options: types.map(({ type: one }) => one),
          },
        ]}
        isEmpty={before === undefined && hasNoEntries(deliveries, (page) => page.deliveries)}
        onChange={change}
      >
        {mayWrite && replayable.length > 0 && (
          <Button variant="default" leftSection={<IconRepeat size={16} />} onClick={() => setReplays(true)}>
            Replay a range
          </Button>
        )}
      </FilterBar>
      <Loaded query={deliveries}>
        {({ deliveries: found, next_before: next }) => (
          <Stack>
            {found.length === 0 ? (
              <EmptyState
                icon={<IconTruckDelivery size={26} />}
                title={isFiltered ? 'No match' : 'No deliveries yet'}
              >
                {isFiltered
                  ? 'No delivery matches these filters.'
                  : 'Each event that is sent to an endpoint appears here with its result.'}
              </EmptyState>
            ) : (
              <DeliveriesTable deliveries={found} endpoints={endpoints} search={search} />
            )}
            <CursorPager
              onFirst={before === undefined ? undefined : () => change({})}
              next={next === null ? undefined : { before: next }}
            />
          </Stack>
        )}
      </Loaded>
      <DeliveryDrawer
        id={search.delivery}
        endpoints={endpoints}
        onClose={() =>
          void navigate({ search: (former) => ({ ...former, delivery: undefined }), replace: true })
        }
      />
      {replays && <ReplayDialog endpoints={replayable} onClose={() => setReplays(false)} />}
    </Stack>
  );
}

function DeliveriesTable({
  deliveries,
  endpoints,
  search,
}: {
  deliveries: Delivery[];
  endpoints: Endpoint[];
  search: EventsSearch;
}) {
  const environment = useEnvironment();
  const urlOf = (id: number) => endpoints.find((one) => one.id === id)?.url;
  return (
    <ListTable
      rows={deliveries}
      keyOf={(delivery) => delivery.id}
      rowClass="fill-row"
      columns={[
        { title: 'Status', cell: (delivery) => <StatusBadge delivery={delivery} /> },
        {
          title: 'Event',
          cell: (delivery) => (
            <>
              <Link
                className="fill-link"
                to="/$environment/events"
                params={{ environment }}
                search={{ ...search, delivery: delivery.id }}
              >
                <Text span size="sm" fw={550} className="wrap">
                  {delivery.event.type}
                </Text>
              </Link>
              <Text size="xs" c="dimmed" hiddenFrom="xs">
                <RelativeTime at={delivery.queued_at} />
              </Text>
              {delivery.connection_id !== null && (
                <Text size="xs" c="dimmed" className="wrap">
                  {delivery.account_email ?? delivery.connection_id}
                </Text>
              )}
            </>
          ),
        },
        {
          title: 'Endpoint',
          visibleFrom: 'sm',
          maw: 260,
          cell: (delivery) => (
            <Text size="sm" truncate title={urlOf(delivery.endpoint)}>
              {hostOf(urlOf(delivery.endpoint) ?? `endpoint ${delivery.endpoint}`)}
            </Text>
          ),
        },
        { title: 'Attempts', visibleFrom: 'md', ta: 'right', cell: (delivery) => delivery.attempts },
        {
          title: 'When',
          visibleFrom: 'xs',
          cell: (delivery) => (
            <Box pos="relative" w="fit-content">
              <RelativeTime at={delivery.queued_at} size="sm" />
            </Box>
          ),
        },
      ]}
    />
  );
}

/** The state of a delivery. A delivery that waits after an attempt is being retried. */
function StatusBadge({ delivery }: { delivery: Pick<Delivery, 'status' | 'attempts'> }) {
  const { label, color } = statuses[delivery.status];
  const isRepeated = delivery.status === 'waiting' && delivery.attempts > 0;
  return (
    <Badge color={isRepeated ? 'orange' : color} miw="max-content">
      {isRepeated ? 'Retrying' : label}
    </Badge>
  );
}

/** One delivery in full, with its last attempt. */
function DeliveryDrawer({
  id,
  endpoints,
  onClose,
}: {
  id: number | undefined;
  endpoints: Endpoint[];
  onClose: () => void;
}) {
  const environment = useEnvironment();
  const query = useQuery({ ...deliveryQuery(environment, id ?? 0), enabled: id !== undefined });
  return (
    <Drawer opened={id !== undefined} onClose={onClose} title="Delivery">
      <Loaded query={query}>
        {(delivery) => (
          <Whole delivery={delivery} endpoint={endpoints.find((one) => one.id === delivery.endpoint)} />
        )}
      </Loaded>
    </Drawer>
  );
}

function Whole({ delivery, endpoint }: { delivery: WholeDelivery; endpoint: Endpoint | undefined }) {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const again = useChange(() => replayDelivery(environment, delivery.id), {
    stale: [[environment, 'deliveries']],
  });
  // The button is disabled until the delivery has settled.
  const body = useFocusIfLost<HTMLDivElement>(`${delivery.status} ${again.isPending}`);
  const attempt = delivery.last_attempt;
  const isFailed = attempt !== null && attempt.error !== undefined;
  const facts: [string, ReactNode][] = [
    ['Endpoint', endpoint?.url ?? delivery.endpoint],
    ['Account', delivery.account_email],
    ['Connection', delivery.connection_id],
    ['Integration', delivery.integration_id],
    ['Queued', <RelativeTime key="queued" at={delivery.queued_at} />],
    ['Attempts', delivery.attempts],
    ...(delivery.settled_at === null
      ? []
      : [['Settled', <RelativeTime key="settled" at={delivery.settled_at} />] as [string, ReactNode]]),
  ];
  return (
    <Stack ref={body} tabIndex={-1} className="unmarked">
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
              <Dimmed>The start of the response</Dimmed>
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
              <Dimmed flex="1 1 200px">
                The delivery is retried automatically for three days while the endpoint is on.
              </Dimmed>
            )}
          </Group>
        </Stack>
      )}
      <Stack gap="xs">
        <Title order={3}>Event</Title>
        <Group gap="xs" wrap="nowrap">
          <Dimmed flex="none">webhook-id</Dimmed>
          <Copyable value={delivery.event.id} what="the webhook-id" />
        </Group>
        {endpoint !== undefined && endpoint.kind !== 'events' && (
          <Dimmed>This address receives the body of the official client, created from this event:</Dimmed>
        )}
        <JsonBlock value={delivery.event} what="the event" />
      </Stack>
    </Stack>
  );
}
