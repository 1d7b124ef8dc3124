import { Badge, Button, Card, Group, SimpleGrid, Skeleton, Stack, Text, Title } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { IconPlayerStop, IconRepeat, IconTrash } from '@tabler/icons-react';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate, useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { BackLink } from '../../ui/BackLink.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { Page } from '../../ui/Page.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMay } from '../sign-in/queries.ts';
import { AllowDeletesDialog } from './AllowDeletesDialog.tsx';
import { ChangesCard } from './ChangesCard.tsx';
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
import { RunError } from './RunError.tsx';
import { RunFacts } from './RunFacts.tsx';
import { RunLog } from './RunLog.tsx';
import { RunBadge } from './StateBadge.tsx';
import { Timeline } from './Timeline.tsx';
import { runKinds } from './words.ts';

/** The kind of function that a run is of. */
const typeOf = ({ kind }: Run): FunctionType => (kind === 'webhook' ? 'sync' : kind);

/** One run: how it went, live while it goes on. */
export function RunPage() {
  const environment = useEnvironment();
  const mayWrite = useMay()('functions:write');
  const { run: id } = useParams({ from: '/$environment/functions/runs/$run' });
  const query = useQuery(runQuery(environment, id));
  const { data: run } = query;
  return (
    <Page
      title={run ? `A run of ${run.function}` : 'A run'}
      before={
        <BackLink
          link={(props) =>
            run ? (
              <Link
                to="/$environment/functions/of/$integration/$type/$name"
                params={{
                  environment,
                  integration: run.provider_config_key,
                  type: typeOf(run),
                  name: run.function,
                }}
                search={{ tab: 'runs' }}
                {...props}
              />
            ) : (
              <Link
                to="/$environment/functions"
                params={{ environment }}
                search={{ tab: 'runs' }}
                {...props}
              />
            )
          }
        >
          {run ? `Runs of ${run.function}` : 'Runs'}
        </BackLink>
      }
      about={
        run ? (
          <Group gap="xs" mt={4}>
            <RunBadge state={run.state} />
            <Badge color="gray">{runKinds[run.kind]}</Badge>
            <Badge color="gray">{run.provider_config_key}</Badge>
            {run.variant !== 'base' && <Badge color="gray">variant {run.variant}</Badge>}
            {run.cancel_requested && !isOver(run) && <Badge color="yellow">Is being cancelled</Badge>}
          </Group>
        ) : (
          query.isPending && <Skeleton h={22} w={220} mt={6} />
        )
      }
      actions={mayWrite && run && <Acts environment={environment} run={run} />}
    >
      <Loaded query={query} loading={<LoadingRows rows={3} height={140} />}>
        {(loaded) => (
          <Stack gap="lg">
            {loaded.error !== null && (
              <RunError environment={environment} run={loaded} type={typeOf(loaded)} mayWrite={mayWrite} />
            )}
            <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
              <Card component="section" aria-label="Timeline">
                <Title order={2} mb="sm">
                  Timeline
                </Title>
                <Timeline run={loaded} />
              </Card>
              <Stack gap="lg">
                <RunFacts environment={environment} run={loaded} type={typeOf(loaded)} />
                {typeOf(loaded) === 'sync' && <ChangesCard environment={environment} run={loaded} />}
              </Stack>
            </SimpleGrid>
            <RunLog environment={environment} run={loaded} />
            {!mayWrite && typeOf(loaded) === 'action' && (
              <Text size="sm" c="dimmed">
                Inputs and outputs of actions are kept sealed, and shown to those who called alone.
              </Text>
            )}
          </Stack>
        )}
      </Loaded>
    </Page>
  );
}

/** Goes to the newest run of the sync that a run is of. */
function useToNewestRun(environment: string, run: Run): () => Promise<void> {
  const queries = useQueryClient();
  const navigate = useNavigate();
  return async () => {
    const { provider_config_key, connection_id, function: name, variant } = run;
    const of = { provider_config_key, connection_id: connection_id ?? '', function: name };
    const { runs } = await queries.fetchQuery({
      ...runsQuery(environment, { ...of, type: 'sync', limit: 20 }),
      staleTime: 0,
    });
    const made = runs.find((one) => one.variant === variant && one.kind === 'sync');
    if (made !== undefined)
      await navigate({ to: '/$environment/functions/runs/$run', params: { environment, run: made.id } });
  };
}

function Acts({ environment, run }: { environment: string; run: Run }) {
  const queries = useQueryClient();
  const toNewestRun = useToNewestRun(environment, run);
  const cancel = useMutation({
    mutationFn: () => cancelRun(environment, run.id),
    onSuccess: (changed) => queries.setQueryData(runQuery(environment, run.id).queryKey, changed),
    onError: ({ message }) => notifications.show({ title: 'Not cancelled', message, color: 'red' }),
  });
  const again = useMutation({
    mutationFn: async () => {
      const { provider_config_key: integration, function: name, variant } = run;
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
        {run.cancel_requested ? 'Is being cancelled' : 'Cancel'}
      </Button>
    );
  }
  if (run.kind !== 'sync' || run.connection_id === null) return null;
  return (
    <>
      {run.error?.code === 'mass_delete_held' && (
        <AllowHeld environment={environment} run={run} connection={run.connection_id} />
      )}
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

function AllowHeld({ environment, run, connection }: { environment: string; run: Run; connection: string }) {
  const [isOpen, setOpen] = useState(false);
  const [deletes, setDeletes] = useState<HeldDelete[]>([]);
  const { provider_config_key: integration, function: name, variant } = run;
  const toNewestRun = useToNewestRun(environment, run);
  const of = { provider_config_key: integration, connection_id: connection, function: name };
  const { data } = useQuery(syncsQuery(environment, { ...of, limit: 100 }));
  const held = data?.syncs.find((sync) => sync.variant === variant)?.held_deletes;
  if (data === undefined) return null;
  return (
    <>
      {held === undefined ? (
        <Text size="sm" c="dimmed">
          This deletion is no longer held.
        </Text>
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
        environment={environment}
        at={{ integration, connection, name, variant }}
        deletes={deletes}
        opened={isOpen}
        onClose={() => setOpen(false)}
        onAllowed={toNewestRun}
      />
    </>
  );
}
