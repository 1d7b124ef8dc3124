import { Badge, Box, Group, Stack, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { IconPlayerPlay } from '../../ui/icons.tsx';
import { ListTable } from '../../ui/ListTable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { GuideLink, runPage } from '../links.tsx';
import { CursorPager, defined, FilterBar, hasNoEntries } from '../lists.tsx';
import type { RunsSearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { heldText } from './advice.ts';
import { type FunctionAt, type FunctionType, type Run, runsQuery } from './queries.ts';
import { RunBadge } from './StateBadge.tsx';
import { formatDuration, runKinds, runStates } from './words.ts';

const pageSize = 50;
const states = Object.entries(runStates).map(([value, { label }]) => ({ value, label }));

/** Runs, newest first: of one function or of all, filtered by the address. */
export function RunsList({
  of,
  search,
  onChange,
}: {
  of: FunctionAt | undefined;
  search: RunsSearch;
  onChange: (next: RunsSearch) => void;
}) {
  const environment = useEnvironment();
  const { kind, state, connection, cursor } = search;
  const integration = of?.integration ?? search.integration;
  const name = of?.name ?? search.function;
  const query = useQuery(
    runsQuery(environment, {
      ...defined({ integration_id: integration, function: name, type: of?.type, kind, state }),
      ...defined({ connection_id: connection, cursor }),
      limit: pageSize,
    }),
  );
  const kinds = Object.entries(runKinds)
    .map(([value, label]) => ({ value, label }))
    .filter(({ value }) => of === undefined || (of.type === 'sync' && /^(sync|webhook)$/.test(value)));
  const isFiltered =
    state !== undefined ||
    kind !== undefined ||
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
          { name: 'state', label: 'State', placeholder: 'Every state', options: states },
          kinds.length > 0 && {
            name: 'kind',
            label: 'Kind of run',
            placeholder: 'Every kind',
            options: kinds,
          },
        ]}
        isEmpty={cursor === undefined && hasNoEntries(query, (page) => page.runs)}
        onChange={onChange}
      />
      <Loaded query={query}>
        {({ runs, next_cursor: next }) => (
          <Stack>
            {runs.length === 0 ? (
              <EmptyState icon={<IconPlayerPlay size={26} />} title={isFiltered ? 'No match' : 'No runs yet'}>
                {isFiltered ? (
                  'No run matches these filters.'
                ) : (
                  <>
                    {firstRunOf(of?.type)} <GuideLink to="runs" />
                  </>
                )}
              </EmptyState>
            ) : (
              <RunsTable runs={runs} isOfOne={of !== undefined} />
            )}
            <CursorPager
              onFirst={cursor === undefined ? undefined : () => onChange({ cursor: undefined })}
              next={next === null ? undefined : { cursor: next }}
            />
          </Stack>
        )}
      </Loaded>
    </Stack>
  );
}

function firstRunOf(type: FunctionType | undefined): string {
  if (type === 'action') return 'An action runs when your application, an agent or a user calls it.';
  if (type === 'on-event') return 'It runs when its event occurs on a connection of the integration.';
  if (type === 'sync') return 'A sync runs at its frequency, for each connection on which it is started.';
  return 'The runs of functions appear here.';
}

/** A list of runs. Each row is a link to the run. */
function RunsTable({
  runs,
  isOfOne,
}: {
  runs: Run[];
  /** All runs are of one function, so its name is not shown. */
  isOfOne: boolean;
}) {
  const environment = useEnvironment();
  return (
    <ListTable
      rows={runs}
      keyOf={(run) => run.id}
      rowClass="fill-row"
      columns={[
        { title: 'State', cell: (run) => <RunBadge state={run.state} /> },
        {
          title: isOfOne ? 'Connection' : 'Function',
          maw: { base: 200, sm: 320 },
          cell: (run) => (
            <>
              <Group gap={6}>
                <Link className="fill-link" {...runPage(environment, run.id)}>
                  <Text span size="sm" fw={550} className="wrap">
                    {isOfOne ? accountOf(run) : run.function}
                  </Text>
                </Link>
                {run.kind !== 'sync' && (!isOfOne || run.kind === 'webhook') && (
                  <Badge color="gray">{runKinds[run.kind]}</Badge>
                )}
                {run.variant !== 'base' && <Badge color="gray">{run.variant}</Badge>}
              </Group>
              {!isOfOne && (
                <Text size="xs" c="dimmed" className="wrap">
                  {run.integration_id} · {accountOf(run)}
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
            </>
          ),
        },
        { title: 'Records', visibleFrom: 'md', cell: (run) => <Text size="sm">{changesOf(run)}</Text> },
        {
          title: 'Duration',
          visibleFrom: 'sm',
          ta: 'right',
          className: 'unbroken',
          cell: (run) => tookOf(run),
        },
        { title: 'Version', visibleFrom: 'lg', cell: (run) => run.version },
        {
          title: 'When',
          visibleFrom: 'xs',
          cell: (run) => (
            <Box pos="relative" w="fit-content" className="unbroken">
              <RelativeTime at={run.queued_at} size="sm" />
            </Box>
          ),
        },
      ]}
    />
  );
}

const accountOf = (run: Run) => run.account_email ?? run.connection_id ?? 'deleted connection';

function tookOf({ started_at: began, ended_at: ended }: Run): string {
  return began === null || ended === null ? '' : formatDuration(Date.parse(ended) - Date.parse(began));
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
