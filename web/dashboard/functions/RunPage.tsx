import {
  Badge,
  Button,
  Card,
  Group,
  Timeline as Line,
  SimpleGrid,
  Skeleton,
  Stack,
  Title,
} from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate, useParams } from '@tanstack/react-router';
import { type ReactNode, useState } from 'react';
import { Copyable } from '../../ui/Copyable.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { Fact, Facts } from '../../ui/Facts.tsx';
import { IconPlayerStop, IconRepeat, IconTrash } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
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
  type Run,
  runQuery,
  runsQuery,
  syncsQuery,
  triggerSync,
} from './queries.ts';
import { RunCalls } from './RunCalls.tsx';
import { RunError } from './RunError.tsx';
import { RunLog } from './RunLog.tsx';
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

/** Navigates to the newest run of the same sync, if the page of this one is still open. */
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
    if (made !== undefined && location.pathname.endsWith(`/${run.id}`))
      await navigate(runPage(environment, made.id));
  };
}

function Acts({ run }: { run: Run }) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const toNewestRun = useToNewestRun(environment, run);
  const cancel = useMutation({
    mutationFn: () => cancelRun(environment, run.id),
    meta: { isShown: true },
    onSuccess: (changed) => queries.setQueryData(runQuery(environment, run.id).queryKey, changed),
    onError: ({ message }) => notifications.show({ title: 'Not cancelled', message, color: 'red' }),
  });
  const again = useMutation({
    mutationFn: async () => {
      const { integration_id: integration, function: name, variant } = run;
      await triggerSync(environment, { integration, connection: run.connection_id ?? '', name, variant });
      await toNewestRun();
    },
    meta: { isShown: true },
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
        {(run.attempt > 1 || (run.state === 'waiting' && run.attempt > 0)) && (
          <Fact name="Attempt">
            {run.attempt} of {run.most_attempts}
          </Fact>
        )}
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
