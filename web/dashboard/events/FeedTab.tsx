import { Accordion, Group, Select, Stack, Text } from '@mantine/core';
import { IconRss } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { JsonBlock } from '../../ui/JsonBlock.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { NewestFirst } from '../../ui/NewestFirst.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import type { EventsSearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { latestQuery, typesQuery } from './queries.ts';

/** The latest events with their data, as a follower of the feed gets them. */
export function FeedTab() {
  const environment = useEnvironment();
  const search = useSearch({ from: '/$environment/events' });
  const navigate = useNavigate({ from: '/$environment/events' });
  const { data: types = [] } = useQuery(typesQuery(environment));
  const [opened, setOpened] = useState<string[]>([]);
  const { type, position } = search;
  const events = useQuery(
    latestQuery(environment, {
      limit: 50,
      ...(type !== undefined && { types: type }),
      ...(position !== undefined && { before: position }),
    }),
  );
  const change = (next: Partial<EventsSearch>) =>
    void navigate({ search: (former) => ({ ...former, position: undefined, ...next }), replace: true });
  const meaningOf = (name: string) => types.find((one) => one.type === name)?.meaning;
  return (
    <Stack>
      <Group justify="space-between" align="flex-start">
        <Stack gap={4} flex="1 1 280px">
          <Select
            aria-label="Type"
            placeholder="Every type"
            clearable
            searchable
            maw={360}
            data={types.map((one) => one.type)}
            value={type ?? null}
            onChange={(value) => change({ type: value ?? undefined })}
          />
          {type !== undefined && (
            <Text size="sm" c="dimmed">
              {meaningOf(type)}
            </Text>
          )}
        </Stack>
        <Text size="sm" c="dimmed" maw={420}>
          Programs follow this with <code>GET /events?after=…&wait=30</code> and miss none.
        </Text>
      </Group>
      <Loaded query={events}>
        {({ events: found, next_before: next }) => (
          <Stack>
            {found.length === 0 ? (
              <EmptyState
                icon={<IconRss size={26} />}
                title={type === undefined ? 'All quiet' : 'Nothing fits'}
              >
                {type === undefined
                  ? 'The first connection, or its deletion, is the first event.'
                  : 'No event of this type is kept.'}
              </EmptyState>
            ) : (
              <Accordion multiple variant="separated" value={opened} onChange={setOpened} order={2}>
                {found.map((event) => (
                  <Accordion.Item key={event.id} value={event.id}>
                    <Accordion.Control>
                      <Group justify="space-between" gap="xs">
                        <Text size="sm" fw={550} className="wrap">
                          {event.type}
                          {typeof event.data.connection_id === 'string' && (
                            <Text span size="xs" c="dimmed" ff="monospace" ml={8}>
                              {event.data.connection_id}
                            </Text>
                          )}
                        </Text>
                        <Text size="sm" c="dimmed" pr="sm">
                          <RelativeTime at={event.created_at} />
                        </Text>
                      </Group>
                    </Accordion.Control>
                    <Accordion.Panel>
                      {opened.includes(event.id) && (
                        <Stack gap="xs">
                          <Text size="sm" c="dimmed">
                            {meaningOf(event.type)}
                          </Text>
                          <JsonBlock value={event} what="the event" />
                        </Stack>
                      )}
                    </Accordion.Panel>
                  </Accordion.Item>
                ))}
              </Accordion>
            )}
            <NewestFirst
              onNewest={position === undefined ? undefined : () => change({})}
              older={
                next === null
                  ? undefined
                  : (looks) => (
                      <Link
                        to="/$environment/events"
                        params={{ environment }}
                        search={{ ...search, position: next }}
                        {...looks}
                      />
                    )
              }
            />
          </Stack>
        )}
      </Loaded>
    </Stack>
  );
}
