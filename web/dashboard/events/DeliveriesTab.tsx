import { Badge, Box, Button, Group, Select, Stack, Table, Text } from '@mantine/core';
import { IconRepeat, IconTruckDelivery } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { NewestFirst } from '../../ui/NewestFirst.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import type { EventsSearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { DeliveryDrawer } from './DeliveryDrawer.tsx';
import { type Delivery, deliveriesQuery, type Endpoint, endpointsQuery, typesQuery } from './queries.ts';
import { ReplayDialog } from './ReplayDialog.tsx';
import { hostOf } from './words.ts';

const statuses = {
  waiting: { label: 'Waiting', color: 'yellow' },
  delivered: { label: 'Delivered', color: 'green' },
  dead: { label: 'Dead', color: 'red' },
} as const;

export function DeliveriesTab() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const search = useSearch({ from: '/$environment/events' });
  const navigate = useNavigate({ from: '/$environment/events' });
  const [replays, setReplays] = useState(false);
  const { data } = useQuery(endpointsQuery(environment));
  const endpoints = data?.endpoints ?? [];
  const { endpoint, status, type, before } = search;
  const deliveries = useQuery(
    deliveriesQuery(environment, {
      limit: 50,
      ...(endpoint !== undefined && { endpoint }),
      ...(status !== undefined && { status }),
      ...(type !== undefined && { type: type as NonNullable<Delivery['event']['type']> as never }),
      ...(before !== undefined && { before }),
    }),
  );
  const change = (next: Partial<EventsSearch>) =>
    void navigate({ search: (former) => ({ ...former, before: undefined, ...next }), replace: true });
  const isFiltered = endpoint !== undefined || status !== undefined || type !== undefined;
  // Of the address that was chosen, so that a replay is about what one looks at.
  const replayable = endpoints.filter(({ id }) => endpoint === undefined || id === endpoint);
  return (
    <Stack>
      <Group gap="xs" align="flex-end">
        <Filters search={search} endpoints={endpoints} onChange={change} />
        {mayWrite && replayable.length > 0 && (
          <Button variant="default" leftSection={<IconRepeat size={16} />} onClick={() => setReplays(true)}>
            Replay a range
          </Button>
        )}
      </Group>
      <Loaded query={deliveries}>
        {({ deliveries: found, next_before: next }) => (
          <Stack>
            {found.length === 0 ? (
              <EmptyState
                icon={<IconTruckDelivery size={26} />}
                title={isFiltered ? 'Nothing fits' : 'Nothing was sent yet'}
              >
                {isFiltered
                  ? 'No delivery matches these filters.'
                  : 'As soon as there is an endpoint, each event that it asks for shows up here with what became of it.'}
              </EmptyState>
            ) : (
              <DeliveriesTable deliveries={found} endpoints={endpoints} search={search} />
            )}
            <NewestFirst
              onNewest={before === undefined ? undefined : () => change({})}
              older={
                next === null
                  ? undefined
                  : (looks) => (
                      <Link
                        to="/$environment/events"
                        params={{ environment }}
                        search={{ ...search, before: next }}
                        {...looks}
                      />
                    )
              }
            />
          </Stack>
        )}
      </Loaded>
      <DeliveryDrawer
        environment={environment}
        id={search.delivery}
        endpoints={endpoints}
        onClose={() => void navigate({ search: (former) => ({ ...former, delivery: undefined }) })}
      />
      {replays && (
        <ReplayDialog environment={environment} endpoints={replayable} onClose={() => setReplays(false)} />
      )}
    </Stack>
  );
}

function Filters({
  search,
  endpoints,
  onChange,
}: {
  search: EventsSearch;
  endpoints: Endpoint[];
  onChange: (next: Partial<EventsSearch>) => void;
}) {
  const environment = useEnvironment();
  const { data: types = [] } = useQuery(typesQuery(environment));
  return (
    <>
      <Select
        flex="1 1 220px"
        aria-label="Endpoint"
        placeholder="Every endpoint"
        clearable
        data={endpoints.map(({ id, url }) => ({ value: String(id), label: url }))}
        value={search.endpoint === undefined ? null : String(search.endpoint)}
        onChange={(value) => onChange({ endpoint: value === null ? undefined : Number(value) })}
      />
      <Select
        flex="1 1 140px"
        aria-label="Status"
        placeholder="Every status"
        clearable
        data={Object.entries(statuses).map(([value, { label }]) => ({ value, label }))}
        value={search.status ?? null}
        onChange={(value) => onChange({ status: (value ?? undefined) as EventsSearch['status'] })}
      />
      <Select
        flex="1 1 200px"
        aria-label="Type"
        placeholder="Every type"
        clearable
        searchable
        data={types.map((one) => one.type)}
        value={search.type ?? null}
        onChange={(value) => onChange({ type: value ?? undefined })}
      />
    </>
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
    <Table.ScrollContainer minWidth={300} className="framed">
      <Table verticalSpacing={10} horizontalSpacing="md">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Status</Table.Th>
            <Table.Th>Event</Table.Th>
            <Table.Th visibleFrom="sm">Endpoint</Table.Th>
            <Table.Th visibleFrom="md" ta="right">
              Attempts
            </Table.Th>
            <Table.Th visibleFrom="xs">When</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {deliveries.map((delivery) => (
            <Table.Tr key={delivery.id} className="fill-row">
              <Table.Td>
                <StatusBadge delivery={delivery} />
              </Table.Td>
              <Table.Td>
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
                  <Text size="xs" c="dimmed" ff="monospace" className="wrap">
                    {delivery.connection_id}
                  </Text>
                )}
              </Table.Td>
              <Table.Td visibleFrom="sm" maw={260}>
                <Text size="sm" truncate title={urlOf(delivery.endpoint)}>
                  {hostOf(urlOf(delivery.endpoint) ?? `endpoint ${delivery.endpoint}`)}
                </Text>
              </Table.Td>
              <Table.Td visibleFrom="md" ta="right">
                {delivery.attempts}
              </Table.Td>
              <Table.Td visibleFrom="xs">
                <Box pos="relative" w="fit-content">
                  <RelativeTime at={delivery.queued_at} size="sm" />
                </Box>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

/** What became of a delivery; one that was tried and waits is on its way again. */
export function StatusBadge({ delivery }: { delivery: Pick<Delivery, 'status' | 'attempts'> }) {
  const { label, color } = statuses[delivery.status];
  const isRepeated = delivery.status === 'waiting' && delivery.attempts > 0;
  return (
    <Badge color={isRepeated ? 'orange' : color} miw="max-content">
      {isRepeated ? 'Retrying' : label}
    </Badge>
  );
}
