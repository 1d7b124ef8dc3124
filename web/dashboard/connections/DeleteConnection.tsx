import { Button, Card, Group, List, Modal, Stack, Text, Title } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { type At, datasetsQuery, deleteConnection } from './queries.ts';

/** Deletion, with what it will destroy said first. */
export function DeleteConnection({ environment, at }: { environment: string; at: At }) {
  const [isOpen, { open, close }] = useDisclosure();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const { data: datasets = [] } = useQuery({ ...datasetsQuery(environment, at), enabled: isOpen });
  const records = datasets.reduce((sum, dataset) => sum + dataset.records, 0);
  const destroy = useMutation({
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
          <Text>This destroys, for good:</Text>
          <List>
            <List.Item>the credentials of the account</List.Item>
            <List.Item>
              {records === 1 ? 'one cached record' : `${records.toLocaleString()} cached records`} in{' '}
              {datasets.length === 1 ? 'one dataset' : `${datasets.length} datasets`}
            </List.Item>
            <List.Item>metadata, tags and the end user's e-mail</List.Item>
          </List>
          {destroy.isError && <FaultNotice error={destroy.error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={close} data-autofocus>
              Keep it
            </Button>
            <Button color="red" loading={destroy.isPending} onClick={() => destroy.mutate()}>
              Delete for good
            </Button>
          </Group>
        </Stack>
      </Modal>
    </Card>
  );
}
