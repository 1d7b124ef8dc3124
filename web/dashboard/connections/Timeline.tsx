import { Box, Card, Group, Timeline as Line, Stack, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { TimelineLine } from '../../ui/TimelineLine.tsx';
import { sentence } from '../../ui/words.ts';
import type { Operation } from '../activity/queries.ts';
import type { LatestEvent } from '../events/queries.ts';
import { AnchorLink, runPage } from '../links.tsx';
import { FilterBar } from '../lists.tsx';
import { type TimelineKind, timelineKinds } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { type At, timelineQuery, type WholeConnection } from './queries.ts';

const labels: Record<TimelineKind, string> = {
  connects: 'Connected and reconnected',
  refreshes: 'Token refreshes',
  syncs: 'Runs of functions',
  events: 'Events',
  failures: 'Failures',
};
const options = timelineKinds.map((value) => ({ value, label: labels[value] }));

/** What happened to a connection, newest first: one list, filtered by kind. */
export function Timeline({ at, connection }: { at: At; connection: WholeConnection }) {
  const environment = useEnvironment();
  const from = '/$environment/connections/$integration/$id';
  const search = useSearch({ from });
  const navigate = useNavigate({ from });
  const query = useQuery(timelineQuery(environment, at, search.kind));
  const createdMs = Date.parse(connection.created_at);
  const wants = (kind: TimelineKind) => search.kind === undefined || search.kind === kind;
  return (
    <Card>
      <Group justify="space-between" mb="md" gap="xs">
        <Title order={2}>Timeline</Title>
        <FilterBar
          search={search}
          filters={[{ name: 'kind', label: 'Kind', placeholder: 'Every kind', options }]}
          isEmpty={false}
          onChange={(next) => void navigate({ search: (former) => ({ ...former, ...next }), replace: true })}
        />
      </Group>
      <Loaded query={query} loading={<LoadingRows rows={6} height={24} />}>
        {({ operations, events, isWhole }) => {
          const entries = grouped([
            ...operations.map((one) => operationEntry(one, createdMs)),
            ...events.filter(({ type }) => search.kind === 'events' || !logged.has(type)).map(eventEntry),
          ]);
          const hasCreation = isWhole && wants('connects') && !entries.some(({ title }) => title === created);
          return (
            <Stack>
              {entries.length === 0 && !hasCreation && <Dimmed>No entries of this kind.</Dimmed>}
              <Line
                bulletSize={10}
                lineWidth={2}
                active={entries.length}
                role="list"
                aria-label="Timeline"
                className="timeline"
              >
                {entries.map((entry) => (
                  <Line.Item
                    key={entry.id}
                    role="listitem"
                    bullet={<span />}
                    color={entry.color}
                    title={<EntryLine entry={entry} at={at} />}
                  />
                ))}
                {hasCreation && (
                  <Line.Item
                    role="listitem"
                    bullet={<span />}
                    color="teal"
                    title={
                      <TimelineLine title="Created" time={<RelativeTime at={connection.created_at} />} />
                    }
                  />
                )}
              </Line>
              {!isWhole && (
                <AnchorLink
                  size="sm"
                  to="/$environment/activity"
                  params={{ environment }}
                  search={{ integration: at.integration, connection: at.id }}
                >
                  View older entries in the activity log
                </AnchorLink>
              )}
            </Stack>
          );
        }}
      </Loaded>
    </Card>
  );
}

/** The title of the authorization that created the connection. */
const created = 'Connected';
/** The types of events about an operation, which is an entry too. */
const logged = new Set([
  'connection.created',
  'connection.reconnected',
  'sync.changed',
  'sync.unchanged',
  'sync.failed',
  'action.succeeded',
  'action.failed',
]);

type Entry = {
  /** Of the newest of them. */
  id: string;
  createdAt: string;
  title: string;
  detail: string;
  color: string;
  count: number;
  of: Operation | LatestEvent;
};

function EntryLine({ entry: { id, createdAt, title, detail, count, of }, at }: { entry: Entry; at: At }) {
  const environment = useEnvironment();
  const page =
    'data' in of
      ? ({
          to: '/$environment/events',
          params: { environment },
          search: { tab: 'feed', type: of.type },
        } as const)
      : of.type === 'run' && of.request_id !== null
        ? runPage(environment, of.request_id)
        : ({
            to: '/$environment/activity',
            params: { environment },
            search: { integration: at.integration, connection: at.id, operation: id },
          } as const);
  return (
    <TimelineLine
      title={
        <AnchorLink inherit c="inherit" {...page}>
          {title}
        </AnchorLink>
      }
      detail={
        detail && (
          <Box component="span" className="cut" title={detail}>
            {detail}
          </Box>
        )
      }
      time={
        <>
          {count > 1 && `${count.toLocaleString()} × · `}
          <RelativeTime at={createdAt} />
        </>
      }
    />
  );
}

/** Newest first. Equal entries that follow each other are one entry. */
function grouped(all: Entry[]): Entry[] {
  const entries: Entry[] = [];
  for (const entry of all.toSorted((one, other) => other.createdAt.localeCompare(one.createdAt))) {
    const last = entries.at(-1);
    if (last?.title !== entry.title || last.detail !== entry.detail) entries.push(entry);
    else last.count += 1;
  }
  return entries;
}

function eventEntry(of: LatestEvent): Entry {
  const { id, type, created_at: createdAt, data } = of;
  const { function: name, model } = data;
  const title = type === 'connection.needs_reauth' ? 'Reconnect needed' : sentence(type.replace('.', ' '));
  const detail = [name, model].filter((part) => typeof part === 'string').join(' · ');
  return { id, createdAt, title, detail, color: 'violet', count: 1, of };
}

/** The authorization that created the connection is logged within this time. */
const creationMs = 60_000;

function operationEntry(of: Operation, createdMs: number): Entry {
  const { id, created_at: createdAt, type, status, method, path, http_status: httpStatus, details } = of;
  const isGood = status === 'success';
  const entry = (title: string, color: string, detail?: string | null): Entry => ({
    id,
    createdAt,
    of,
    title,
    count: 1,
    detail: [httpStatus, of.error_code, detail].filter(Boolean).join(' · '),
    color: isGood ? color : 'red',
  });
  switch (type) {
    case 'connect': {
      const isFirst = Math.abs(Date.parse(createdAt) - createdMs) < creationMs;
      if (!isGood) return entry('Connecting failed', 'red');
      return entry(isFirst ? created : 'Reconnected', 'teal');
    }
    case 'refresh':
      return entry(isGood ? 'Token refreshed' : 'Token refresh failed', 'trellis');
    case 'run':
      return entry(isGood ? 'Run succeeded' : 'Run failed', 'green', path);
    case 'delivery':
      return entry(
        isGood ? 'Event delivered' : 'Event not delivered',
        'violet',
        [details.event_type, path].filter(Boolean).join(' · '),
      );
    case 'proxy':
      return entry(isGood ? 'Call succeeded' : 'Call failed', 'gray', `${method} ${path}`);
    default:
      return entry(`${sentence(type.replace('.', ' '))} ${isGood ? 'succeeded' : 'failed'}`, 'gray', path);
  }
}
