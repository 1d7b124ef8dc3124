import {
  Badge,
  Box,
  Button,
  Card,
  Group,
  Timeline as Line,
  Select,
  SimpleGrid,
  Skeleton,
  Stack,
  Text,
  TextInput,
  Title,
} from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate, useParams } from '@tanstack/react-router';
import { type ReactNode, useEffect, useLayoutEffect, useRef, useState } from 'react';
import { Copyable } from '../../ui/Copyable.tsx';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { Fact, Facts } from '../../ui/Facts.tsx';
import { IconPlayerStop, IconRepeat, IconSearch, IconTrash } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { counted } from '../../ui/size.ts';
import { TimelineLine } from '../../ui/TimelineLine.tsx';
import { exactTime, useNow } from '../../ui/time.ts';
import { AnchorLink, BackLink, connectionPage, datasetPage, functionPage, runPage } from '../links.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMay } from '../sign-in/queries.ts';
import {
  cancelRun,
  type FunctionType,
  type HeldDelete,
  isOver,
  linesQuery,
  type Run,
  type RunLine,
  runQuery,
  runsQuery,
  syncsQuery,
  triggerSync,
} from './queries.ts';
import { RunCalls } from './RunCalls.tsx';
import { RunError } from './RunError.tsx';
import { RunTrend } from './RunTrend.tsx';
import { RunBadge } from './StateBadge.tsx';
import { AllowDeletesDialog } from './SyncActs.tsx';
import { formatDuration, runKinds, runStates, triggerWords } from './words.ts';

/** The type of the function of a run. */
const typeOf = ({ kind }: Run): FunctionType => (kind === 'webhook' ? 'sync' : kind);

/** One run, updated live until it ends. */
export function RunPage() {
  const environment = useEnvironment();
  const mayWrite = useMay()('functions:write');
  const { run: id } = useParams({ from: '/$environment/functions/runs/$run' });
  const query = useQuery(runQuery(environment, id));
  const { data: run } = query;
  return (
    <Page
      title={run ? `Run of ${run.function}` : 'Run'}
      before={
        run ? (
          <BackLink
            {...functionPage(environment, {
              integration: run.integration_id,
              type: typeOf(run),
              name: run.function,
            })}
            search={{ tab: 'runs' }}
          >
            {`Runs of ${run.function}`}
          </BackLink>
        ) : (
          <BackLink to="/$environment/functions" params={{ environment }} search={{ tab: 'runs' }}>
            Runs
          </BackLink>
        )
      }
      about={
        run ? (
          <Group gap="xs" mt={4}>
            <RunBadge state={run.state} />
            <Badge color="gray">{runKinds[run.kind]}</Badge>
            <Badge color="gray">{run.integration_id}</Badge>
            {run.variant !== 'base' && <Badge color="gray">variant {run.variant}</Badge>}
            {run.cancel_requested && !isOver(run) && <Badge color="yellow">Cancelling</Badge>}
          </Group>
        ) : (
          query.isPending && <Skeleton h={22} w={220} mt={6} />
        )
      }
      actions={mayWrite && run && <Acts run={run} />}
    >
      <Loaded query={query} loading={<LoadingRows rows={3} height={140} />}>
        {(loaded) => (
          <Stack gap="lg">
            {loaded.error !== null && <RunError run={loaded} type={typeOf(loaded)} mayWrite={mayWrite} />}
            <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
              <Stack gap="lg">
                <Card component="section" aria-label="Timeline">
                  <Title order={2} mb="sm">
                    Timeline
                  </Title>
                  <Timeline run={loaded} />
                </Card>
                {typeOf(loaded) === 'sync' && <ChangesCard run={loaded} />}
              </Stack>
              <RunFacts run={loaded} type={typeOf(loaded)} />
            </SimpleGrid>
            <RunCalls run={loaded} />
            <RunTrend run={loaded} />
            <RunLog run={loaded} />
            {!mayWrite && typeOf(loaded) === 'action' && (
              <Dimmed>
                Inputs and outputs of actions are encrypted, and only visible to users who may run functions.
              </Dimmed>
            )}
          </Stack>
        )}
      </Loaded>
    </Page>
  );
}

/** Navigates to the newest run of the same sync. */
function useToNewestRun(environment: string, run: Run): () => Promise<void> {
  const queries = useQueryClient();
  const navigate = useNavigate();
  return async () => {
    const { integration_id, connection_id, function: name, variant } = run;
    const of = { integration_id, connection_id: connection_id ?? '', function: name };
    const { runs } = await queries.fetchQuery({
      ...runsQuery(environment, { ...of, type: 'sync', limit: 20 }),
      staleTime: 0,
    });
    const made = runs.find((one) => one.variant === variant && one.kind === 'sync');
    if (made !== undefined) await navigate(runPage(environment, made.id));
  };
}

function Acts({ run }: { run: Run }) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const toNewestRun = useToNewestRun(environment, run);
  const cancel = useMutation({
    mutationFn: () => cancelRun(environment, run.id),
    onSuccess: (changed) => queries.setQueryData(runQuery(environment, run.id).queryKey, changed),
    onError: ({ message }) => notifications.show({ title: 'Not cancelled', message, color: 'red' }),
  });
  const again = useMutation({
    mutationFn: async () => {
      const { integration_id: integration, function: name, variant } = run;
      await triggerSync(environment, { integration, connection: run.connection_id ?? '', name, variant });
      await toNewestRun();
    },
    onError: ({ message }) => notifications.show({ title: 'Not run', message, color: 'red' }),
  });
  if (!isOver(run)) {
    return (
      <Button
        variant="light"
        color="red"
        leftSection={<IconPlayerStop size={16} />}
        loading={cancel.isPending}
        disabled={run.cancel_requested}
        onClick={() => cancel.mutate()}
      >
        {run.cancel_requested ? 'Cancelling' : 'Cancel'}
      </Button>
    );
  }
  if (run.kind !== 'sync' || run.connection_id === null) return null;
  return (
    <>
      {run.error?.code === 'mass_delete_held' && <AllowHeld run={run} connection={run.connection_id} />}
      <Button
        variant="default"
        leftSection={<IconRepeat size={16} />}
        loading={again.isPending}
        onClick={() => again.mutate()}
      >
        Run again
      </Button>
    </>
  );
}

function AllowHeld({ run, connection }: { run: Run; connection: string }) {
  const environment = useEnvironment();
  const [isOpen, setOpen] = useState(false);
  const [deletes, setDeletes] = useState<HeldDelete[]>([]);
  const { integration_id: integration, function: name, variant } = run;
  const toNewestRun = useToNewestRun(environment, run);
  const of = { integration_id: integration, connection_id: connection, function: name };
  const { data } = useQuery(syncsQuery(environment, { ...of, limit: 100 }));
  const held = data?.syncs.find((sync) => sync.variant === variant)?.held_deletes;
  if (data === undefined) return null;
  return (
    <>
      {held === undefined ? (
        <Dimmed>This deletion is no longer held.</Dimmed>
      ) : (
        <Button
          color="red"
          variant="light"
          leftSection={<IconTrash size={16} />}
          onClick={() => {
            setDeletes(held);
            setOpen(true);
          }}
        >
          Allow held deletion
        </Button>
      )}
      <AllowDeletesDialog
        at={{ integration, connection, name, variant }}
        deletes={deletes}
        opened={isOpen}
        onClose={() => setOpen(false)}
        onAllowed={toNewestRun}
      />
    </>
  );
}

/** The function, the connection and the trigger of a run. */
export function RunFacts({ run, type }: { run: Run; type: FunctionType }) {
  const environment = useEnvironment();
  const { integration_id: integration, connection_id: id, function: name } = run;
  return (
    <Card component="section" aria-label="About">
      <Title order={2} mb="xs">
        About
      </Title>
      <Facts>
        <Fact name="Function">
          <AnchorLink inherit {...functionPage(environment, { integration, type, name })} search={{}}>
            {name}
          </AnchorLink>
        </Fact>
        <Fact name="Version">{run.version}</Fact>
        <Fact name="Connection">
          {id === null ? (
            'deleted'
          ) : (
            <AnchorLink inherit {...connectionPage(environment, { integration, id })}>
              {run.account_email ?? id}
            </AnchorLink>
          )}
        </Fact>
        <Fact name="Trigger">{triggerWords(run.trigger)}</Fact>
        <Fact name="Attempt">
          {run.attempt === 0 ? 'none yet' : run.attempt} of {run.most_attempts}
        </Fact>
        <Fact name="Run ID">
          <Copyable value={run.id} what="the run ID" />
        </Fact>
      </Facts>
    </Card>
  );
}

const changes = ['added', 'updated', 'deleted', 'unchanged'] as const;

/** The record changes of a run, by model. */
function ChangesCard({ run }: { run: Run }) {
  const environment = useEnvironment();
  const models = Object.entries(run.counts);
  const { connection_id: id, integration_id: integration, variant } = run;
  return (
    <Card component="section" aria-label="Records">
      <Title order={2} mb="xs">
        Records
      </Title>
      {models.length === 0 ? (
        <Dimmed>{isOver(run) ? 'The run saved no records.' : 'The run has saved no records so far.'}</Dimmed>
      ) : (
        <Facts>
          {models.map(([model, counts]) => (
            <Fact
              key={model}
              name={
                id === null ? (
                  model
                ) : (
                  <AnchorLink inherit {...datasetPage(environment, { integration, id, model, variant })}>
                    {model}
                  </AnchorLink>
                )
              }
            >
              {changes
                .filter((name) => counts[name] > 0)
                .map((name) => `${counts[name].toLocaleString()} ${name}`)
                .join(', ') || 'no changes'}
            </Fact>
          ))}
        </Facts>
      )}
    </Card>
  );
}

type Step = { key: string; title: string; at: string | null; color: string; text?: ReactNode };

/** The steps of a run, from the queue to its end. */
export function Timeline({ run }: { run: Run }) {
  const nowMs = useNow();
  const steps = stepsOf(run, nowMs);
  return (
    <Line
      bulletSize={10}
      lineWidth={2}
      active={steps.length - (isOver(run) ? 1 : 2)}
      role="list"
      className="timeline"
    >
      {steps.map(({ key, title, at, color, text }) => (
        <Line.Item
          key={key}
          role="listitem"
          bullet={<span />}
          title={<TimelineLine title={title} detail={text} time={at !== null && exactTime(at)} />}
          color={color}
          lineVariant={at === null ? 'dashed' : 'solid'}
        />
      ))}
    </Line>
  );
}

function stepsOf(run: Run, nowMs: number): Step[] {
  const {
    queued_at: queued,
    not_before: notBefore,
    started_at: began,
    ended_at: ended,
    earlier_attempts: earlier,
  } = run;
  const steps: Step[] = [{ key: 'queued', title: 'Queued', at: queued, color: 'gray' }];
  for (const { attempt, ended_at: at, error } of earlier) {
    const text = `${error.code}: ${error.message}`;
    steps.push({ key: `attempt ${attempt}`, title: `Attempt ${attempt} ended`, at, color: 'orange', text });
  }
  const isAnother = earlier.length > 0;
  if (run.state === 'waiting') {
    const isLater = Date.parse(notBefore) > nowMs;
    steps.push({
      key: 'waiting',
      at: null,
      color: 'yellow',
      title: isAnother ? `Waiting for attempt ${run.attempt + 1}` : 'Waiting for capacity',
      ...(isLater && { text: <RelativeTime at={notBefore} /> }),
    });
    return steps;
  }
  if (began !== null) {
    const waitedMs = Date.parse(began) - Date.parse(queued);
    const title = isAnother ? `Attempt ${run.attempt} began` : 'Began';
    // A run whose node was lost continues in a new attempt, without a new start.
    const isResumed = isAnother && earlier.at(-1)!.ended_at > began;
    if (isResumed) {
      steps.splice(1, 0, { key: 'began', title: 'Began', at: began, color: 'trellis' });
    } else {
      const text =
        !isAnother && waitedMs > 1_000 ? `after ${formatDuration(waitedMs)} in the queue` : undefined;
      steps.push({ key: 'began', title, at: began, color: 'trellis', ...(text && { text }) });
    }
  }
  const { label, color } = runStates[run.state];
  if (ended === null) {
    const forMs = began === null ? 0 : nowMs - Date.parse(began);
    steps.push({
      key: 'running',
      title: label,
      at: null,
      color,
      ...(forMs > 1_000 && { text: `for ${formatDuration(forMs)}` }),
    });
    return steps;
  }
  const tookMs = began === null ? undefined : Date.parse(ended) - Date.parse(began);
  const text = tookMs === undefined ? undefined : `after ${formatDuration(tookMs)}`;
  steps.push({ key: 'ended', title: label, at: ended, color, ...(text && { text }) });
  return steps;
}

/** The number of lines shown first, from the end: more than a screen, and few enough to render quickly. */
const step = 500;
/** The last lines of a run may arrive shortly after its end. */
const lateMs = 1_500;
const levels = { warn: ['warn', 'error'], error: ['error'] } as const;
const levelColors: Record<string, string> = { error: 'red', warn: 'yellow', info: 'teal', debug: 'gray' };
/** The positions of each attempt start at a multiple of this. */
const positionsOfAttempt = 100_000;

/** The log of a run, updated live. */
export function RunLog({ run }: { run: Run }) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const over = isOver(run);
  const query = useQuery({
    ...linesQuery(environment, run.id, queries),
    refetchInterval: over ? false : 1_000,
  });
  const { refetch } = query;
  const isCutOff = query.fetchStatus === 'paused' || query.failureCount > 0;
  useEffect(() => {
    if (!over) return;
    const timer = setTimeout(() => void refetch(), lateMs);
    return () => clearTimeout(timer);
  }, [over, refetch]);
  const [level, setLevel] = useState<keyof typeof levels>();
  const [text, setText] = useState('');
  const fitting = (query.data ?? []).filter(
    (line) =>
      (level === undefined || levels[level].some((one) => one === line.level)) &&
      line.message.toLowerCase().includes(text.toLowerCase()),
  );
  return (
    <Card component="section" aria-label="Log">
      <Group justify="space-between" mb="sm" gap="xs">
        <Group gap="xs">
          <Title order={2}>Log</Title>
          {!over && (
            <Badge color={isCutOff ? 'yellow' : 'teal'} variant="dot">
              {isCutOff ? 'The service cannot be reached' : 'Live'}
            </Badge>
          )}
        </Group>
        {query.data !== undefined && query.data.length > 0 && (
          <Group gap="xs">
            <TextInput
              size="xs"
              w={170}
              aria-label="Search the log"
              placeholder="Search the log"
              leftSection={<IconSearch size={14} />}
              value={text}
              onChange={({ currentTarget: { value } }) => setText(value)}
            />
            <Select
              size="xs"
              w={150}
              aria-label="Level"
              placeholder="All levels"
              clearable
              data={[
                { value: 'warn', label: 'Warnings and errors' },
                { value: 'error', label: 'Errors' },
              ]}
              value={level ?? null}
              onChange={(next) => setLevel((next ?? undefined) as keyof typeof levels | undefined)}
            />
            {(level !== undefined || text !== '') && (
              <Text size="xs" c="dimmed" role="status">
                {fitting.length.toLocaleString()} of {counted(query.data.length, 'line')}
              </Text>
            )}
            <CopyButton value={fitting.map(textOf).join('\n')} what="the log" />
          </Group>
        )}
      </Group>
      <Loaded query={query} loading={<LoadingRows rows={1} height={120} />}>
        {(lines) => {
          if (fitting.length > 0) return <Lines lines={fitting} isLive={!over} />;
          return (
            <Dimmed>
              {lines.length > 0
                ? 'No line matches.'
                : over
                  ? 'The run wrote no log lines.'
                  : 'No log lines yet.'}
            </Dimmed>
          );
        }}
      </Loaded>
    </Card>
  );
}

function Lines({ lines, isLive }: { lines: RunLine[]; isLive: boolean }) {
  const [max, setMost] = useState(step);
  const box = useRef<HTMLDivElement>(null);
  const follows = useRef(isLive);
  const last = lines.at(-1)?.position;
  // biome-ignore lint/correctness/useExhaustiveDependencies: moved where a line has come
  useLayoutEffect(() => {
    const { current } = box;
    if (current !== null && follows.current) current.scrollTop = current.scrollHeight;
  }, [last]);
  const hidden = Math.max(0, lines.length - max);
  const shown = lines.slice(hidden);
  return (
    <Stack gap="xs">
      {hidden > 0 && (
        <Button variant="default" size="compact-sm" w="fit-content" onClick={() => setMost(max * 4)}>
          Show earlier ({counted(hidden, 'line')})
        </Button>
      )}
      <Box
        ref={box}
        className="log"
        role="log"
        aria-label="Lines"
        tabIndex={0}
        onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
          follows.current = isLive && scrollHeight - scrollTop - clientHeight < 24;
        }}
      >
        {shown.map((line, at) => (
          <div key={line.position} className="log-line">
            {attemptOf(line) !== attemptOf(shown[at - 1] ?? line) && (
              <div className="log-break">Attempt {attemptOf(line)}</div>
            )}
            <span className="log-time">{timeOf(line.at)}</span>
            <span
              className="log-level"
              style={{ color: `var(--mantine-color-${levelColors[line.level] ?? 'gray'}-light-color)` }}
            >
              {line.level}
            </span>
            <span className="log-text">{line.message}</span>
          </div>
        ))}
      </Box>
    </Stack>
  );
}

const attemptOf = ({ position }: RunLine): number => Math.floor(position / positionsOfAttempt);
const clock = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  fractionalSecondDigits: 3,
  hour12: false,
});
const timeOf = (at: string): string => clock.format(new Date(at));
const textOf = ({ at, level, message }: RunLine): string => `${at} ${level} ${message}`;
