import { Button, Group, List, Modal, Stack, Text } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useMutation } from '@tanstack/react-query';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { counted } from '../../ui/size.ts';
import { allowMassDelete, type HeldDelete, type SyncAt } from './queries.ts';
import { useRefreshSyncs } from './SyncActs.tsx';

type Given = {
  environment: string;
  at: SyncAt;
  /** As they were when the dialog opened: what is allowed is what was read. */
  deletes: HeldDelete[];
  onClose: () => void;
  onAllowed?: () => Promise<unknown>;
};

/** Allows the deletions that are held, once, up to the numbers that it shows. */
export function AllowDeletesDialog({
  opened,
  ...given
}: Given & {
  opened: boolean;
}) {
  return (
    <Modal
      opened={opened}
      onClose={given.onClose}
      title={`Allow ${given.at.name} to delete ${counted(totalOf(given.deletes), 'record')}?`}
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <Question {...given} />
    </Modal>
  );
}

function Question({ environment, at, deletes, onClose, onAllowed }: Given) {
  const refresh = useRefreshSyncs(environment);
  const allow = useMutation({
    mutationFn: () => allowMassDelete(environment, { ...at, deletes }),
    onSuccess: async () => {
      notifications.show({ message: 'The sync reads everything again, then deletes.', color: 'green' });
      await refresh();
      onClose();
      await onAllowed?.();
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
      <Text size="sm" c="dimmed">
        The sync runs now and reads everything again. It deletes the records that neither this run nor the
        held one found: at most these numbers, once. A record that only the new run misses is kept for now.
      </Text>
      {allow.isError && <FaultNotice error={allow.error} />}
      <Group justify="flex-end">
        <Button variant="default" onClick={onClose} data-autofocus>
          Cancel
        </Button>
        <Button color="red" loading={allow.isPending} onClick={() => allow.mutate()}>
          Delete up to {counted(totalOf(deletes), 'record')}
        </Button>
      </Group>
    </Stack>
  );
}

function totalOf(deletes: HeldDelete[]): number {
  return deletes.reduce((sum, { would_delete }) => sum + would_delete, 0);
}
