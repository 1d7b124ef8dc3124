import { Button, Card, Group, Stack, Text, Title } from '@mantine/core';
import { modals } from '@mantine/modals';
import { notifications } from '@mantine/notifications';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { deleteIntegration } from './queries.ts';

/** Deletion with a question before it; the service refuses what still has connections. */
export function DeleteIntegration({
  environment,
  integration,
  connections,
}: {
  environment: string;
  integration: string;
  connections: number;
}) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const destroy = useMutation({
    mutationFn: () => deleteIntegration(environment, integration),
    onSuccess: async () => {
      await navigate({ to: '/$environment/integrations', params: { environment } });
      await queries.invalidateQueries({ queryKey: [environment] });
    },
    onError: ({ message }) => notifications.show({ title: 'Not deleted', message, color: 'red' }),
  });
  const ask = () =>
    modals.openConfirmModal({
      title: `Delete ${integration}?`,
      children: <Text size="sm">It has no connections. Its client ID and secret go with it.</Text>,
      labels: { confirm: 'Delete for good', cancel: 'Keep it' },
      confirmProps: { color: 'red' },
      closeButtonProps: { 'aria-label': 'Close' },
      onConfirm: () => destroy.mutate(),
    });
  return (
    <Card>
      <Group justify="space-between">
        <Stack gap={2} flex="1 1 260px">
          <Title order={2}>Delete this integration</Title>
          <Text size="sm" c="dimmed">
            {connections === 0
              ? 'Its client ID and secret are forgotten.'
              : 'Its connections stand in the way: delete them first.'}
          </Text>
        </Stack>
        <Button
          color="red"
          variant="light"
          onClick={ask}
          loading={destroy.isPending}
          disabled={connections > 0}
        >
          Delete
        </Button>
      </Group>
    </Card>
  );
}
