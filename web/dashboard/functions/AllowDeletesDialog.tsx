import { Button, Group, List, Modal, Stack, Text } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { counted } from '../../ui/size.ts';
import { allowMassDelete, type HeldDelete, type SyncAt } from './queries.ts';
import { useRefreshSyncs } from './SyncActs.tsx';

/** Allows the deletions that are held, once, up to the numbers that it shows. */
export function AllowDeletesDialog({
  environment,
  at,
  held,
  onClose,
}: {
  environment: string;
  at: SyncAt;
  held: HeldDelete[];
  onClose: () => void;
}) {
  const refresh = useRefreshSyncs(environment);
  // As it was when the dialog opened: what is allowed is what was read.
  const [deletes] = useState(held);
  const allow = useMutation({
    mutationFn: () => allowMassDelete(environment, { ...at, deletes }),
    onSuccess: async () => {
      notifications.show({ message: 'The sync reads everything again, then deletes.', color: 'green' });
      await refresh();
      onClose();
    },
  });
  const total = deletes.reduce((sum, { would_delete }) => sum + would_delete, 0);
  return (
    <Modal
      opened
      onClose={onClose}
      title={`Allow ${at.name} to delete ${counted(total, 'record')}?`}
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <Stack>
        <Text>The last run for {at.connection} did not find:</Text>
        <List>
          {deletes.map(({ model, would_delete, live }) => (
            <List.Item key={model}>
              {would_delete.toLocaleString()} of {live.toLocaleString()} records of {model}
            </List.Item>
          ))}
        </List>
        <Text size="sm" c="dimmed">
          The sync runs now and reads everything again. It deletes what it does not find, at most these
          numbers, once. If more is missing, the deletion is held again.
        </Text>
        {allow.isError && <FaultNotice error={allow.error} />}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose} data-autofocus>
            Cancel
          </Button>
          <Button color="red" loading={allow.isPending} onClick={() => allow.mutate()}>
            Delete up to {counted(total, 'record')}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
