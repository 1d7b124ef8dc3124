import { Alert, Anchor, Badge, Button, Card, Group, Loader, Stack, Text, Title } from '@mantine/core';
import { IconAlertTriangle, IconPencil, IconPlayerTrackNext, IconTrash } from '@tabler/icons-react';
import { useMutation, useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import type { At } from '../connections/queries.ts';
import { isOver, type Run, runQuery, type Sync, triggerSync } from '../functions/queries.ts';
import { RunError } from '../functions/RunError.tsx';
import { SyncBadge } from '../functions/StateBadge.tsx';
import { SyncActs, useRefreshSyncs } from '../functions/SyncActs.tsx';
import { LastRun, NextTime } from '../functions/SyncsTable.tsx';
import { spelled } from '../functions/words.ts';
import { useMay } from '../sign-in/queries.ts';
import { RemoveSheet } from './RemoveSheet.tsx';
import { nextStepOf } from './SheetFault.tsx';
import { type ChosenSheet, type Identity, rowsSync } from './settings.ts';

/** What a sheet is at, what its last run did, and what can be done with it. */
export function StateCard({
  environment,
  at,
  sheet,
  sync,
}: {
  environment: string;
  at: At;
  sheet: ChosenSheet;
  sync: Sync | undefined;
}) {
  const may = useMay();
  const mayWrite = may('functions:write') && may('connections:write');
  const [isRemoving, setRemoving] = useState(false);
  const refresh = useRefreshSyncs(environment);
  const syncAt = { integration: at.integration, connection: at.id, name: rowsSync, variant: sheet.variant };
  const run = useMutation({ mutationFn: () => triggerSync(environment, syncAt), onSettled: refresh });
  return (
    <Card component="section" aria-label="State">
      <Stack gap="sm">
        <Group justify="space-between" gap="xs">
          <Group gap="xs">
            <Title order={2}>State</Title>
            <SyncBadge sync={sync} />
            {sheet.variant !== 'base' && <Badge color="gray">{sheet.variant}</Badge>}
          </Group>
          {mayWrite && (
            <Group gap="xs">
              <Button
                size="sm"
                leftSection={<IconPlayerTrackNext size={16} />}
                loading={run.isPending}
                disabled={sync === undefined || sync.current_run !== null || !sync.enabled}
                onClick={() => run.mutate()}
              >
                Run now
              </Button>
              <Button
                size="sm"
                variant="default"
                leftSection={<IconPencil size={16} />}
                renderRoot={(props) => (
                  <Link
                    to="/$environment/connections/$integration/$id/sheets/new"
                    params={{ environment, ...at }}
                    search={{ edit: sheet.variant }}
                    {...props}
                  />
                )}
              >
                Edit
              </Button>
              <Button
                size="sm"
                variant="default"
                leftSection={<IconTrash size={16} />}
                onClick={() => setRemoving(true)}
              >
                Remove
              </Button>
              <SyncActs environment={environment} at={syncAt} sync={sync} />
            </Group>
          )}
        </Group>
        <Text size="sm">{howText(sheet)}</Text>
        {sync === undefined ? (
          <Text size="sm" role="status">
            Its sync is not there. Edit the sheet and save it, and it is made.
          </Text>
        ) : (
          <Group gap="lg">
            <Text size="sm">
              <Text span inherit c="dimmed">
                Runs{' '}
              </Text>
              {sync.frequency === null ? 'when asked for' : spelled(sync.frequency)}
            </Text>
            <Group gap={6}>
              <Text size="sm" c="dimmed">
                Last run
              </Text>
              <LastRun sync={sync} environment={environment} />
            </Group>
            <Text size="sm">
              <Text span inherit c="dimmed">
                Next{' '}
              </Text>
              <NextTime sync={sync} />
            </Text>
          </Group>
        )}
        {sync?.held && <Text size="sm">{sync.held.message}</Text>}
        {run.isError && <FaultNotice error={run.error} />}
        <Progress environment={environment} sync={sync} mayWrite={mayWrite} />
      </Stack>
      <RemoveSheet
        environment={environment}
        at={at}
        sheet={isRemoving ? sheet : undefined}
        onClose={() => setRemoving(false)}
      />
    </Card>
  );
}

const ways: Record<Exclude<Identity, 'key'>, string> = {
  metadata: 'rows are told apart by a mark on each of them',
  content: 'rows are told apart by what they hold',
};

function howText({ headerRow, identity, keyColumn }: ChosenSheet): string {
  const how = identity === 'key' ? `rows are told apart by ${keyColumn}` : ways[identity];
  return `The header is row ${headerRow}; ${how}.`;
}

/** What the run that goes on, or the last one, has come to. */
function Progress({
  environment,
  sync,
  mayWrite,
}: {
  environment: string;
  sync: Sync | undefined;
  mayWrite: boolean;
}) {
  const id = sync?.current_run?.id ?? sync?.last_run?.id;
  const { data: run } = useQuery({ ...runQuery(environment, id ?? ''), enabled: id !== undefined });
  if (run === undefined) return null;
  if (!isOver(run)) {
    return (
      <Group gap="xs" role="status">
        <Loader size="xs" aria-hidden />
        <Text size="sm">{run.state === 'waiting' ? 'The run waits for capacity.' : progressText(run)}</Text>
      </Group>
    );
  }
  if (run.error === null) {
    return (
      <Text size="sm" c="dimmed" role="status">
        {outcomeText(run)}
      </Text>
    );
  }
  const step = nextStepOf(run.error.code);
  if (step === undefined || run.state !== 'failed') {
    return <RunError environment={environment} run={run} type="sync" mayWrite={mayWrite} />;
  }
  return (
    <Alert color="red" icon={<IconAlertTriangle size={18} />} title={run.error.message} role="alert">
      <Text size="sm">
        {step}{' '}
        <Anchor
          inherit
          c="inherit"
          underline="always"
          renderRoot={(looks) => (
            <Link to="/$environment/functions/runs/$run" params={{ environment, run: run.id }} {...looks} />
          )}
        >
          To the run
        </Anchor>
      </Text>
    </Alert>
  );
}

const names = ['added', 'updated', 'deleted'] as const;

function changesOf(run: Run): string {
  const counts = Object.values(run.counts);
  const sum = (name: (typeof names)[number]) => counts.reduce((all, one) => all + one[name], 0);
  const told = names.flatMap((name) => (sum(name) > 0 ? [`${sum(name).toLocaleString()} ${name}`] : []));
  return told.join(', ');
}

function progressText(run: Run): string {
  const changes = changesOf(run);
  return changes === '' ? 'It reads the sheet.' : `It reads the sheet: ${changes} so far.`;
}

function outcomeText(run: Run): string {
  return `The last run: ${changesOf(run) || 'nothing had changed'}.`;
}
