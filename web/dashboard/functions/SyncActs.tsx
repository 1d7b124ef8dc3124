import { ActionIcon, Button, Checkbox, Group, List, Menu, Stack, Text, TextInput } from '@mantine/core';
import { useState } from 'react';
import { Dialog, DialogEnd } from '../../ui/Dialog.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import {
  IconClock,
  IconDots,
  IconPlayerPause,
  IconPlayerPlay,
  IconPlayerTrackNext,
  IconRestore,
  IconTrash,
} from '../../ui/icons.tsx';
import { counted } from '../../ui/size.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useChange } from '../use-change.ts';
import {
  allowMassDelete,
  type HeldDelete,
  pauseSync,
  resetSync,
  type Sync,
  type SyncAt,
  setFrequency,
  startSync,
  triggerSync,
} from './queries.ts';
import { withEvery } from './words.ts';

/** The actions on a sync of a connection. `sync` is undefined if it was never started. */
export function SyncActs({ at, sync }: { at: SyncAt; sync: Sync | undefined }) {
  const environment = useEnvironment();
  const [opened, setOpened] = useState<'frequency' | 'reset' | 'deletes'>();
  const [deletes, setDeletes] = useState<HeldDelete[]>([]);
  const options = { stale: syncKeys(environment), failed: 'Not done' };
  const run = useChange((sync: SyncAt) => triggerSync(environment, sync), {
    ...options,
    done: 'The sync runs when capacity is available.',
  });
  const pause = useChange((sync: SyncAt) => pauseSync(environment, sync), {
    ...options,
    done: 'The sync is paused. A current run continues to its end.',
  });
  const start = useChange((sync: SyncAt) => startSync(environment, sync), {
    ...options,
    done: 'The sync is started. It runs at its next time.',
  });
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
            aria-label={`Actions for ${title} of ${at.connection}`}
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
                Change the frequency
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
          <FrequencyDialog at={at} sync={sync} opened={opened === 'frequency'} onClose={close} />
          <AllowDeletesDialog at={at} deletes={deletes} opened={opened === 'deletes'} onClose={close} />
          <ResetDialog at={at} opened={opened === 'reset'} onClose={close} />
        </>
      )}
    </>
  );
}

/** The keys of the queries that a change of a sync makes stale. */
export const syncKeys = (environment: string) =>
  ['syncs', 'runs', 'functions'].map((name) => [environment, name]);

const common = ['every 5 minutes', 'every 30 minutes', 'every hour', 'every 6 hours', 'every day'];

type FrequencyProps = { at: SyncAt; sync: Pick<Sync, 'frequency' | 'own_frequency'>; onClose: () => void };

/** Sets the frequency of a sync for one connection, instead of the frequency of the function. */
function FrequencyDialog({ opened, ...given }: FrequencyProps & { opened: boolean }) {
  return (
    <Dialog opened={opened} onClose={given.onClose} title={`How often ${given.at.name} runs`}>
      <FrequencyForm {...given} />
    </Dialog>
  );
}

function FrequencyForm({ at, sync, onClose }: FrequencyProps) {
  const environment = useEnvironment();
  const [typed, setTyped] = useState(sync.frequency === null ? '' : withEvery(sync.frequency));
  const save = useChange((frequency: string | null) => setFrequency(environment, { ...at, frequency }), {
    stale: syncKeys(environment),
    after: onClose,
  });
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        save.mutate(typed.trim());
      }}
    >
      <Stack>
        <TextInput
          label="Frequency"
          description="For this connection only. The shortest interval is 30 seconds."
          data-autofocus
          value={typed}
          onChange={({ currentTarget: { value } }) => {
            save.reset();
            setTyped(value);
          }}
        />
        <Group gap={6}>
          {common.map((one) => (
            <Button key={one} size="compact-sm" variant="default" onClick={() => setTyped(one)}>
              {one}
            </Button>
          ))}
        </Group>
        {sync.own_frequency !== null && <Dimmed>This sync has its own frequency.</Dimmed>}
        {save.isError && <FaultNotice error={save.error} />}
        <Group justify="flex-end">
          {sync.own_frequency !== null && (
            <Button variant="default" disabled={save.isPending} onClick={() => save.mutate(null)}>
              Use the function's frequency
            </Button>
          )}
          <Button type="submit" loading={save.isPending} disabled={typed.trim() === ''}>
            Save
          </Button>
        </Group>
      </Stack>
    </form>
  );
}

type ResetProps = { at: SyncAt; onClose: () => void };

/** Resets a sync, with a list of what it deletes. */
function ResetDialog({ opened, ...given }: ResetProps & { opened: boolean }) {
  return (
    <Dialog opened={opened} onClose={given.onClose} title={`Reset ${given.at.name}?`}>
      <ResetQuestion {...given} />
    </Dialog>
  );
}

function ResetQuestion({ at, onClose }: ResetProps) {
  const environment = useEnvironment();
  const [isEmptied, setEmptied] = useState(false);
  const reset = useChange(() => resetSync(environment, { ...at, records: isEmptied ? 'removed' : 'kept' }), {
    done: 'The sync starts from the beginning when capacity is available.',
    stale: syncKeys(environment),
    after: onClose,
  });
  return (
    <Stack>
      <Text>For {at.connection} this deletes:</Text>
      <List>
        <List.Item>its checkpoint: the next run reads everything again</List.Item>
        <List.Item>open delete tracking, and the time of its last success</List.Item>
        {isEmptied && (
          <List.Item>all records of its models, without a deletion event for each record</List.Item>
        )}
      </List>
      <Dimmed>A current run is stopped. Then the sync runs immediately.</Dimmed>
      <Checkbox
        label="Also remove the records"
        description="Consumers receive an event that the dataset was emptied. The next run adds the records again."
        checked={isEmptied}
        onChange={({ currentTarget: { checked } }) => setEmptied(checked)}
      />
      <DialogEnd
        act={isEmptied ? 'Reset and remove records' : 'Reset'}
        attempt={reset}
        button={{ color: 'red' }}
        onClose={onClose}
        onAct={() => reset.mutate()}
      />
    </Stack>
  );
}

type AllowDeletesProps = {
  at: SyncAt;
  /** The numbers when the dialog opened: the user allows exactly what the dialog shows. */
  deletes: HeldDelete[];
  onClose: () => void;
  onAllowed?: () => Promise<unknown>;
};

/** Allows the held deletions once, up to the shown numbers. */
export function AllowDeletesDialog({ opened, ...given }: AllowDeletesProps & { opened: boolean }) {
  return (
    <Dialog
      opened={opened}
      onClose={given.onClose}
      title={`Allow ${given.at.name} to delete ${counted(totalOf(given.deletes), 'record')}?`}
    >
      <AllowDeletesQuestion {...given} />
    </Dialog>
  );
}

function AllowDeletesQuestion({ at, deletes, onClose, onAllowed }: AllowDeletesProps) {
  const environment = useEnvironment();
  const allow = useChange(() => allowMassDelete(environment, { ...at, deletes }), {
    done: 'The sync reads everything again, then deletes.',
    stale: syncKeys(environment),
    after: () => {
      onClose();
      return onAllowed?.();
    },
  });
  return (
    <Stack>
      <Text>The last run for {at.connection} did not find:</Text>
      <List>
        {deletes.map(({ model, would_delete, live }) => (
          <List.Item key={model}>
            {would_delete.toLocaleString()} of {live.toLocaleString()} records of {model}
          </List.Item>
        ))}
      </List>
      <Dimmed>
        The sync runs now and reads everything again. It deletes the records that neither this run nor the
        held one found: at most these numbers, once. A record that only the new run misses is kept for now.
      </Dimmed>
      <DialogEnd
        act={`Delete up to ${counted(totalOf(deletes), 'record')}`}
        attempt={allow}
        button={{ color: 'red' }}
        onClose={onClose}
        onAct={() => allow.mutate()}
      />
    </Stack>
  );
}

function totalOf(deletes: HeldDelete[]): number {
  return deletes.reduce((sum, { would_delete }) => sum + would_delete, 0);
}
