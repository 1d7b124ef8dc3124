import { ActionIcon, Menu } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import {
  IconClock,
  IconDots,
  IconPlayerPause,
  IconPlayerPlay,
  IconPlayerTrackNext,
  IconRestore,
  IconTrash,
} from '@tabler/icons-react';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { AllowDeletesDialog } from './AllowDeletesDialog.tsx';
import { FrequencyDialog } from './FrequencyDialog.tsx';
import { type HeldDelete, pauseSync, type Sync, type SyncAt, startSync, triggerSync } from './queries.ts';
import { ResetDialog } from './ResetDialog.tsx';

/** What can be done with a sync of a connection. `sync` undefined: it was never started. */
export function SyncActs({
  environment,
  at,
  sync,
}: {
  environment: string;
  at: SyncAt;
  sync: Sync | undefined;
}) {
  const [opened, setOpened] = useState<'frequency' | 'reset' | 'deletes'>();
  const [deletes, setDeletes] = useState<HeldDelete[]>([]);
  const run = useSyncAct(environment, {
    act: triggerSync,
    told: 'The sync runs as soon as capacity is available.',
  });
  const pause = useSyncAct(environment, {
    act: pauseSync,
    told: 'It is paused. What runs goes on to its end.',
  });
  const start = useSyncAct(environment, { act: startSync, told: 'It is started: it runs at its next time.' });
  const isPaused = sync === undefined || sync.next_at === null;
  const isOff = sync?.enabled === false;
  const close = () => setOpened(undefined);
  const title = at.variant === 'base' ? at.name : `${at.name}, ${at.variant}`;
  return (
    <>
      <Menu position="bottom-end" width={220}>
        <Menu.Target>
          <ActionIcon
            variant="subtle"
            color="gray"
            aria-label={`Acts on ${title} of ${at.connection}`}
            loading={run.isPending || pause.isPending || start.isPending}
          >
            <IconDots size={18} />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item
            leftSection={<IconPlayerTrackNext size={16} />}
            disabled={isOff || sync?.state === 'running'}
            onClick={() => run.mutate(at)}
          >
            Run now
          </Menu.Item>
          {isPaused ? (
            <Menu.Item leftSection={<IconPlayerPlay size={16} />} onClick={() => start.mutate(at)}>
              Start
            </Menu.Item>
          ) : (
            <Menu.Item leftSection={<IconPlayerPause size={16} />} onClick={() => pause.mutate(at)}>
              Pause
            </Menu.Item>
          )}
          {sync !== undefined && (
            <>
              <Menu.Item leftSection={<IconClock size={16} />} onClick={() => setOpened('frequency')}>
                Change its frequency
              </Menu.Item>
              <Menu.Divider />
              {sync.held_deletes !== undefined && (
                <Menu.Item
                  color="red"
                  leftSection={<IconTrash size={16} />}
                  disabled={isOff}
                  onClick={() => {
                    setDeletes(sync.held_deletes ?? []);
                    setOpened('deletes');
                  }}
                >
                  Allow held deletion
                </Menu.Item>
              )}
              <Menu.Item
                color="red"
                leftSection={<IconRestore size={16} />}
                disabled={isOff}
                onClick={() => setOpened('reset')}
              >
                Reset
              </Menu.Item>
            </>
          )}
        </Menu.Dropdown>
      </Menu>
      {sync !== undefined && (
        <>
          <FrequencyDialog
            environment={environment}
            at={at}
            sync={sync}
            opened={opened === 'frequency'}
            onClose={close}
          />
          <AllowDeletesDialog
            environment={environment}
            at={at}
            deletes={deletes}
            opened={opened === 'deletes'}
            onClose={close}
          />
          <ResetDialog environment={environment} at={at} opened={opened === 'reset'} onClose={close} />
        </>
      )}
    </>
  );
}

/** An act on a sync, with a notification of its result; the lists of syncs and runs are fetched again. */
function useSyncAct(
  environment: string,
  { act, told }: { act: (environment: string, at: SyncAt) => Promise<void>; told: string },
) {
  const refresh = useRefreshSyncs(environment);
  return useMutation({
    mutationFn: (at: SyncAt) => act(environment, at),
    onSuccess: () => notifications.show({ message: told, color: 'green' }),
    onError: ({ message }) => notifications.show({ title: 'Not done', message, color: 'red' }),
    onSettled: refresh,
  });
}

export function useRefreshSyncs(environment: string): () => Promise<unknown> {
  const queries = useQueryClient();
  return () =>
    Promise.all(
      ['syncs', 'runs', 'functions'].map((name) =>
        queries.invalidateQueries({ queryKey: [environment, name] }),
      ),
    );
}
