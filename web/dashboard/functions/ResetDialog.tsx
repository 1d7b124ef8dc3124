import { Button, Checkbox, Group, List, Modal, Stack, Text } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { resetSync, type SyncAt } from './queries.ts';
import { useRefreshSyncs } from './SyncActs.tsx';

type Given = { environment: string; at: SyncAt; onClose: () => void };

/** Lets a sync begin from nothing, with what is forgotten said first. */
export function ResetDialog({
  opened,
  ...given
}: Given & {
  opened: boolean;
}) {
  return (
    <Modal
      opened={opened}
      onClose={given.onClose}
      title={`Reset ${given.at.name}?`}
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <Question {...given} />
    </Modal>
  );
}

function Question({ environment, at, onClose }: Given) {
  const refresh = useRefreshSyncs(environment);
  const [isEmptied, setEmptied] = useState(false);
  const reset = useMutation({
    mutationFn: () => resetSync(environment, { ...at, records: isEmptied ? 'removed' : 'kept' }),
    onSuccess: async () => {
      notifications.show({
        message: 'The sync starts from nothing, as soon as capacity is available.',
        color: 'green',
      });
      await refresh();
      onClose();
    },
  });
  return (
    <Stack>
      <Text>For {at.connection} this forgets:</Text>
      <List>
        <List.Item>its checkpoint, so that it reads everything again</List.Item>
        <List.Item>delete tracking that is open, and when it last succeeded</List.Item>
        {isEmptied && <List.Item>all records of its models, without a trace for who follows them</List.Item>}
      </List>
      <Text size="sm" c="dimmed">
        A run that goes on is ended. Then it runs at once.
      </Text>
      <Checkbox
        label="Remove its records, too"
        description="Readers get an event that the dataset was emptied; records come back as new ones."
        checked={isEmptied}
        onChange={({ currentTarget: { checked } }) => setEmptied(checked)}
      />
      {reset.isError && <FaultNotice error={reset.error} />}
      <Group justify="flex-end">
        <Button variant="default" onClick={onClose} data-autofocus>
          Cancel
        </Button>
        <Button color="red" loading={reset.isPending} onClick={() => reset.mutate()}>
          {isEmptied ? 'Reset and remove records' : 'Reset'}
        </Button>
      </Group>
    </Stack>
  );
}
