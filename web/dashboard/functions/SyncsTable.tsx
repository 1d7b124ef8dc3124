import { Badge, Box, Card, Group, Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { Fault } from '../../api/client.ts';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { IconPlugConnected } from '../../ui/icons.tsx';
import { ListTable } from '../../ui/ListTable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { upTo } from '../../ui/size.ts';
import { useNow } from '../../ui/time.ts';
import type { At } from '../connections/queries.ts';
import { AnchorLink, connectionPage, functionPage, runPage } from '../links.tsx';
import { CursorPager, defined, FilterBar, hasNoEntries, NoMatch } from '../lists.tsx';
import type { SyncsSearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMay } from '../sign-in/queries.ts';
import { heldText } from './advice.ts';
import { type FunctionAt, functionsQuery, type Sync, type SyncCounts, syncsQuery } from './queries.ts';
import { RunBadge, SyncBadge } from './StateBadge.tsx';
import { SyncActs } from './SyncActs.tsx';
import { syncStates, withEvery } from './words.ts';

/** The connections for which syncs run, with the state of each. With `of`, all are of this function. */
function SyncsTable({ of, syncs }: { of: FunctionAt | undefined; syncs: Sync[] }) {
  const environment = useEnvironment();
  const mayWrite = useMay()('functions:write');
  return (
    <ListTable
      rows={syncs}
      keyOf={({ id }) => id}
      columns={[
        {
          title: 'Connection',
          maw: { base: 220, sm: 360 },
          cell: (sync) => (
            <>
              <Group gap={6}>
                <AnchorLink
                  size="sm"
                  fw={550}
                  className="wrap"
                  {...connectionPage(environment, {
                    integration: sync.integration_id,
                    id: sync.connection_id,
                  })}
                >
                  {sync.account_email ?? sync.connection_id}
                </AnchorLink>
                {sync.variant !== 'base' && <Badge color="gray">{sync.variant}</Badge>}
              </Group>
              {of === undefined && (
                <AnchorLink
                  size="xs"
                  className="wrap"
                  {...functionPage(environment, {
                    integration: sync.integration_id,
                    type: 'sync',
                    name: sync.function,
                  })}
                >
                  {sync.function} of {sync.integration_id}
                </AnchorLink>
              )}
              {sync.account_email !== null && (
                <Text size="xs" c="dimmed" ff="monospace" className="wrap" visibleFrom="sm">
                  {sync.connection_id}
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
                <LastRun sync={sync} />
              </Box>
              <SyncError sync={sync} />
            </>
          ),
        },
        { title: 'State', visibleFrom: 'xs', cell: (sync) => <SyncBadge sync={sync} /> },
        {
          title: 'Runs',
          visibleFrom: 'lg',
          cell: ({ frequency, own_frequency: own }) => (
            <>
              <Text size="sm">{frequency === null ? '' : withEvery(frequency)}</Text>
              {own !== null && (
                <Text size="xs" c="dimmed">
                  its own frequency
                </Text>
              )}
            </>
          ),
        },
        {
          title: 'Next',
          visibleFrom: 'sm',
          fz: 'sm',
          className: 'unbroken',
          cell: (sync) => <NextTime sync={sync} />,
        },
        { title: 'Last run', visibleFrom: 'md', cell: (sync) => <LastRun sync={sync} /> },
        mayWrite && {
          label: 'Actions',
          w: 56,
          cell: (sync) => (
            <SyncActs
              at={{
                integration: sync.integration_id,
                connection: sync.connection_id,
                name: sync.function,
                variant: sync.variant,
              }}
              sync={sync}
            />
          ),
        },
      ]}
    />
  );
}

export function NextTime({ sync }: { sync: Pick<Sync, 'state' | 'next_at'> }) {
  const nowMs = useNow();
  const isDue = sync.next_at !== null && Math.abs(Date.parse(sync.next_at) - nowMs) < 10_000;
  if (isDue) return 'now';
  return <RelativeTime at={sync.next_at} never={sync.state === 'paused' ? 'when started' : 'not set'} />;
}

/** The current or the last run, with a link to it. */
export function LastRun({
  sync: { current_run: current, last_run: last },
}: {
  sync: Pick<Sync, 'current_run' | 'last_run'>;
}) {
  const environment = useEnvironment();
  const shown = current ?? last;
  if (shown === null) {
    return <Dimmed>never</Dimmed>;
  }
  return (
    <Group gap={6}>
      <Link className="plain-link" {...runPage(environment, shown.id)} title="Open the run">
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

/** Why a sync does not run, or the error of its last run; nothing without an error. */
export function SyncError({
  sync: { held, held_deletes: deletes, last_run: last, failures, state },
}: {
  sync: Sync;
}) {
  if (held !== null) {
    return (
      <Text size="xs" c="var(--mantine-color-orange-light-color)" className="wrap" mt={2}>
        {held.message}
      </Text>
    );
  }
  if (failures === 0 || last === null || last.error === null || state === 'running') return null;
  if (last.error.code === 'mass_delete_held') {
    return (
      <Text size="xs" c="var(--mantine-color-red-light-color)" className="wrap" mt={2}>
        {heldText(last.error.message)}
        {deletes !== undefined && ' Open the menu of the sync to allow it.'}
      </Text>
    );
  }
  return (
    <Text size="xs" c="var(--mantine-color-red-light-color)" className="wrap" lineClamp={2} mt={2}>
      {failures > 1 && `${failures.toLocaleString()} times: `}
      {last.error.message}
    </Text>
  );
}

const pageSize = 25;
const states = Object.entries(syncStates).map(([value, { label }]) => ({ value, label }));

/** The connections and variants of one sync or of all, with their state and actions, filtered by the address. */
export function SyncsList({
  of,
  search,
  onChange,
}: {
  of: FunctionAt | undefined;
  search: SyncsSearch;
  onChange: (next: SyncsSearch) => void;
}) {
  const environment = useEnvironment();
  const { is, connection, after } = search;
  const integration = of?.integration ?? search.integration;
  const name = of?.name ?? search.function;
  const query = useQuery(
    syncsQuery(environment, {
      ...defined({ integration_id: integration, function: name }),
      ...defined({ state: is, connection_id: connection, after }),
      limit: pageSize,
    }),
  );
  const isFiltered =
    is !== undefined ||
    connection !== undefined ||
    (of === undefined && (integration !== undefined || name !== undefined));
  return (
    <Stack>
      <FilterBar
        search={search}
        filters={[
          of === undefined && { name: 'function', label: 'Function' },
          of === undefined && 'integration',
          { name: 'connection', label: 'Connection ID' },
          { name: 'is', label: 'State', placeholder: 'Every state', options: states },
        ]}
        isEmpty={after === undefined && hasNoEntries(query, (page) => page.syncs)}
        onChange={onChange}
      >
        <Dimmed role="status">{query.data && countsOf(query.data.counts)}</Dimmed>
      </FilterBar>
      <Loaded query={query}>
        {({ syncs, next_after: next }) => (
          <Stack>
            {syncs.length > 0 ? (
              <SyncsTable of={of} syncs={syncs} />
            ) : isFiltered ? (
              <NoMatch
                icon={<IconPlugConnected size={26} />}
                onClear={() =>
                  onChange({
                    is: undefined,
                    connection: undefined,
                    integration: undefined,
                    function: undefined,
                  })
                }
              >
                No sync matches these filters.
              </NoMatch>
            ) : (
              <EmptyState icon={<IconPlugConnected size={26} />} title="No connection yet">
                A sync with automatic start runs for each new connection of its integration. Start other syncs
                on the page of the connection, or with <code>POST /functions/syncs/start</code>.{' '}
                <AnchorLink
                  inherit
                  underline="always"
                  to="/$environment/connections"
                  params={{ environment }}
                  search={integration === undefined ? {} : { integration }}
                >
                  Connections
                </AnchorLink>
              </EmptyState>
            )}
            <CursorPager
              onFirst={after === undefined ? undefined : () => onChange({ after: undefined })}
              next={next === null ? undefined : { after: next }}
              labels={['To the first', 'More']}
            />
          </Stack>
        )}
      </Loaded>
    </Stack>
  );
}

/** "1,204 in all: 3 failing, 1 held". */
function countsOf(counts: SyncCounts): string {
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const parts = (['running', 'failing', 'held', 'paused'] as const)
    .filter((state) => counts[state] > 0)
    .map((state) => `${upTo(counts[state])} ${state}`);
  return `${upTo(total)} in all${parts.length > 0 ? `: ${parts.join(', ')}` : ''}`;
}

type Shown = { name: string; variant: string; sync: Sync | undefined };

/** The syncs of a connection, including those that were never started. */
export function SyncsCard({ at }: { at: At }) {
  const environment = useEnvironment();
  const mayWrite = useMay()('functions:write');
  const functions = useQuery(
    functionsQuery(environment, { integration_id: at.integration, type: 'sync', limit: 100 }),
  );
  const syncs = useQuery(
    syncsQuery(environment, { integration_id: at.integration, connection_id: at.id, limit: 200 }),
  );
  const isOff =
    functions.data === undefined &&
    functions.error instanceof Fault &&
    functions.error.code === 'functions_off';
  return (
    <Card component="section" aria-label="Syncs">
      <Group justify="space-between" mb="xs">
        <Title order={2}>Syncs</Title>
        {!isOff && (
          <AnchorLink
            size="sm"
            to="/$environment/functions"
            params={{ environment }}
            search={{ tab: 'runs', integration: at.integration, connection: at.id }}
          >
            Runs
          </AnchorLink>
        )}
      </Group>
      {isOff ? (
        <Dimmed>Functions are turned off in this service.</Dimmed>
      ) : (
        <Loaded query={functions}>
          {({ data: deployed }) =>
            deployed.length === 0 ? (
              <Dimmed>
                No sync is deployed for {at.integration}. Your own code can save records with{' '}
                <code>POST /records</code>;{' '}
                <AnchorLink
                  inherit
                  underline="always"
                  to="/$environment/functions"
                  params={{ environment }}
                  search={{}}
                >
                  functions
                </AnchorLink>{' '}
                fetch and save.
              </Dimmed>
            ) : (
              <Loaded query={syncs}>
                {(known) => (
                  <Stack gap="sm">
                    {shownOf(
                      deployed.map(({ name }) => name),
                      known.syncs,
                    ).map((one) => (
                      <SyncsCardRow key={`${one.name}:${one.variant}`} at={at} of={one} mayWrite={mayWrite} />
                    ))}
                  </Stack>
                )}
              </Loaded>
            )
          }
        </Loaded>
      )}
    </Card>
  );
}

function SyncsCardRow({
  at,
  of: { name, variant, sync },
  mayWrite,
}: {
  at: At;
  of: Shown;
  mayWrite: boolean;
}) {
  const environment = useEnvironment();
  const { integration, id: connection } = at;
  return (
    <Group wrap="nowrap" align="flex-start" justify="space-between" gap="sm">
      <Stack gap={4} miw={0}>
        <Group gap={8}>
          <AnchorLink
            size="sm"
            fw={550}
            className="wrap"
            {...functionPage(environment, { integration, type: 'sync', name })}
            search={{}}
          >
            {name}
          </AnchorLink>
          {variant !== 'base' && <Badge color="gray">{variant}</Badge>}
          <SyncBadge sync={sync} />
        </Group>
        {sync !== undefined && (
          <>
            <Group gap="md">
              <Group gap={6}>
                <Dimmed>Last</Dimmed>
                <LastRun sync={sync} />
              </Group>
              <Text size="sm">
                <Text span inherit c="dimmed">
                  Next{' '}
                </Text>
                <NextTime sync={sync} />
              </Text>
            </Group>
            <SyncError sync={sync} />
          </>
        )}
      </Stack>
      {mayWrite && <SyncActs at={{ integration, connection, name, variant }} sync={sync} />}
    </Group>
  );
}

/** Ordered by name and variant. A function without a sync on this connection is listed as not started. */
function shownOf(deployed: readonly string[], syncs: readonly Sync[]): Shown[] {
  const known = syncs.map((sync) => ({ name: sync.function, variant: sync.variant, sync }));
  const others = deployed
    .filter((name) => !known.some((one) => one.name === name))
    .map((name) => ({ name, variant: 'base', sync: undefined }));
  return [...known, ...others].sort(
    (a, b) => a.name.localeCompare(b.name) || a.variant.localeCompare(b.variant),
  );
}
