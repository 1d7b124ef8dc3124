import { Button, Group, Modal, Stack, Text, TextInput } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { type Sync, type SyncAt, setFrequency } from './queries.ts';
import { useRefreshSyncs } from './SyncActs.tsx';
import { spelled } from './words.ts';

const common = ['every 5 minutes', 'every 30 minutes', 'every hour', 'every 6 hours', 'every day'];

type Given = {
  environment: string;
  at: SyncAt;
  sync: Pick<Sync, 'frequency' | 'own_frequency'>;
  onClose: () => void;
};

/** How often a sync runs for one connection, in place of what its function says. */
export function FrequencyDialog({
  opened,
  ...given
}: Given & {
  opened: boolean;
}) {
  return (
    <Modal
      opened={opened}
      onClose={given.onClose}
      title={`How often ${given.at.name} runs`}
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <Form {...given} />
    </Modal>
  );
}

function Form({ environment, at, sync, onClose }: Given) {
  const refresh = useRefreshSyncs(environment);
  const [typed, setTyped] = useState(sync.frequency === null ? '' : spelled(sync.frequency));
  const save = useMutation({
    mutationFn: (frequency: string | null) => setFrequency(environment, { ...at, frequency }),
    onSuccess: async () => {
      await refresh();
      onClose();
    },
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
          description="For this connection alone, every 30 seconds at most."
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
        {sync.own_frequency !== null && (
          <Text size="sm" c="dimmed">
            It has one of its own now.
          </Text>
        )}
        {save.isError && <FaultNotice error={save.error} />}
        <Group justify="flex-end">
          {sync.own_frequency !== null && (
            <Button variant="default" disabled={save.isPending} onClick={() => save.mutate(null)}>
              As the function says
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
