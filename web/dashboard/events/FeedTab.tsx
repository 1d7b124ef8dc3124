import { Accordion, Group, Stack, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { IconRss } from '../../ui/icons.tsx';
import { JsonBlock } from '../../ui/JsonBlock.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { GuideLink } from '../links.tsx';
import { CursorPager, defined, FilterBar, hasNoEntries } from '../lists.tsx';
import type { EventsSearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { type LatestEvent, latestQuery, typesQuery } from './queries.ts';

/** What an event is about: the account, the function and the dataset. */
function subjectOf({ data, account_email: email }: LatestEvent): string {
  const parts = [email ?? data.connection_id, data.function, data.model];
  return parts.filter((part) => typeof part === 'string').join(' · ');
}

/** The latest events with their data, as in the feed. */
export function FeedTab() {
  const environment = useEnvironment();
  const search = useSearch({ from: '/$environment/events' });
  const navigate = useNavigate({ from: '/$environment/events' });
  const { data: types = [] } = useQuery(typesQuery(environment));
  const [opened, setOpened] = useState<string[]>([]);
  const { type, position } = search;
  const events = useQuery(
    latestQuery(environment, { limit: 50, ...defined({ types: type, before: position }) }),
  );
  const change = (next: Partial<EventsSearch>) =>
    void navigate({ search: (former) => ({ ...former, position: undefined, ...next }), replace: true });
  const meaningOf = (name: string) => types.find((one) => one.type === name)?.meaning;
  return (
    <Stack>
      <Group justify="space-between" align="flex-start">
        <Stack gap={4} flex="1 1 280px">
          <FilterBar
            search={search}
            filters={[
              {
                name: 'type',
                label: 'Type',
                placeholder: 'Every type',
                options: types.map(({ type: one }) => one),
              },
            ]}
            isEmpty={position === undefined && hasNoEntries(events, (page) => page.events)}
            onChange={change}
          />
          {type !== undefined && <Dimmed>{meaningOf(type)}</Dimmed>}
        </Stack>
        <Dimmed maw={420}>
          Programs read the feed with <code>GET /events?after=…&wait=30</code> and miss no event.
        </Dimmed>
      </Group>
      <Loaded query={events}>
        {({ events: found, next_before: next }) => (
          <Stack>
            {found.length === 0 ? (
              <EmptyState
                icon={<IconRss size={26} />}
                title={type === undefined ? 'No events yet' : 'No match'}
              >
                {type === undefined ? (
                  <>
                    The first event appears when a connection is created. <GuideLink to="events" />
                  </>
                ) : (
                  'The feed contains no event of this type.'
                )}
              </EmptyState>
            ) : (
              <Accordion multiple variant="separated" value={opened} onChange={setOpened} order={2}>
                {found.map((event) => (
                  <Accordion.Item key={event.id} value={event.id}>
                    <Accordion.Control>
                      <Group justify="space-between" gap="xs">
                        <Text size="sm" fw={550} className="wrap">
                          {event.type}
                          <Text span size="sm" c="dimmed" fw={400} ml={8}>
                            {subjectOf(event)}
                          </Text>
                        </Text>
                        <Dimmed pr="sm">
                          <RelativeTime at={event.created_at} />
                        </Dimmed>
                      </Group>
                    </Accordion.Control>
                    <Accordion.Panel>
                      {opened.includes(event.id) && (
                        <Stack gap="xs">
                          <Dimmed>{meaningOf(event.type)}</Dimmed>
                          <JsonBlock value={event} what="the event" />
                        </Stack>
                      )}
                    </Accordion.Panel>
                  </Accordion.Item>
                ))}
              </Accordion>
            )}
            <CursorPager
              onFirst={position === undefined ? undefined : () => change({})}
              next={next === null ? undefined : { position: next }}
            />
          </Stack>
        )}
      </Loaded>
    </Stack>
  );
}
