import { Button, Card, Group, List, Modal, Stack, Text, Title } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { counted } from '../../ui/size.ts';
import type { Dataset } from '../records/queries.ts';
import { type At, connectionQuery, datasetsQuery, deleteConnection, deletionKey } from './queries.ts';

/** Deletion, with what it will destroy said first. */
export function DeleteConnection({ environment, at }: { environment: string; at: At }) {
  const [isOpen, { open, close }] = useDisclosure();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const datasets = useQuery({ ...datasetsQuery(environment, at), enabled: isOpen });
  const destroy = useMutation({
    mutationKey: deletionKey(environment, at),
    onMutate: () => queries.cancelQueries({ queryKey: connectionQuery(environment, at).queryKey }),
    mutationFn: () => deleteConnection(environment, at),
    onSuccess: async () => {
      await navigate({ to: '/$environment/connections', params: { environment }, search: {} });
      await queries.invalidateQueries({ queryKey: [environment, 'connections'] });
    },
  });
  return (
    <Card>
      <Group justify="space-between">
        <Stack gap={2} flex="1 1 260px">
          <Title order={2}>Delete this connection</Title>
          <Text size="sm" c="dimmed">
            Its data key is destroyed, so that nothing it has brought can be read again.
          </Text>
        </Stack>
        <Button color="red" variant="light" onClick={open}>
          Delete
        </Button>
      </Group>
      <Modal
        opened={isOpen}
        onClose={close}
        title="Delete this connection?"
        closeButtonProps={{ 'aria-label': 'Close' }}
      >
        <Stack>
          <Loaded query={datasets} loading={<LoadingRows rows={1} height={148} />}>
            {(known) => (
              <>
                <Text>This destroys, for good:</Text>
                <List>
                  <List.Item>
                    the credentials of the account; its grant is revoked at the provider, unless another
                    connection shares it or the provider takes no revocations
                  </List.Item>
                  <List.Item>{recordsOf(known)}</List.Item>
                  <List.Item>metadata, tags and the end user's e-mail</List.Item>
                </List>
              </>
            )}
          </Loaded>
          {destroy.isError && <FaultNotice error={destroy.error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={close} data-autofocus>
              Keep it
            </Button>
            <Button
              color="red"
              disabled={datasets.data === undefined}
              loading={destroy.isPending}
              onClick={() => destroy.mutate()}
            >
              Delete for good
            </Button>
          </Group>
        </Stack>
      </Modal>
    </Card>
  );
}

/** Also those that are marked as deleted: their payloads are kept until they are pruned. */
function recordsOf(datasets: Dataset[]): string {
  const sum = (pick: (dataset: Dataset) => number) => datasets.reduce((total, one) => total + pick(one), 0);
  const deleted = sum((one) => one.deleted);
  const live = counted(
    sum((one) => one.records),
    'cached record',
  );
  const also = deleted > 0 ? ` and ${counted(deleted, 'deleted one')}` : '';
  return `${live}${also} in ${counted(datasets.length, 'dataset')}`;
}
