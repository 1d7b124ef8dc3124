import { Button, Group, Modal, Stack, Text, TextInput } from '@mantine/core';
import { useForm } from '@mantine/form';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { createEnvironment, renameEnvironment } from './queries.ts';

/** Makes an environment, or gives one another name. */
export function EnvironmentDialog({
  former,
  onClose,
}: {
  /** The one to rename; undefined makes one. */
  former: string | undefined;
  onClose: () => void;
}) {
  const current = useEnvironment();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const form = useForm({
    initialValues: { name: former ?? '' },
    validate: {
      name: (name) =>
        /^[a-z0-9][a-z0-9_-]{0,63}$/.test(name)
          ? null
          : 'Small letters, digits, _ and -, up to 64, beginning with a letter or digit',
    },
  });
  const save = useMutation({
    mutationFn: ({ name }: { name: string }) =>
      former === undefined ? createEnvironment(name) : renameEnvironment({ from: former, to: name }),
    onSuccess: async (_, { name }) => {
      await queries.refetchQueries({ queryKey: ['me'] });
      await queries.invalidateQueries({ queryKey: ['environments'] });
      onClose();
      if (former === current) {
        await navigate({
          to: '/$environment/settings',
          params: { environment: name },
          search: { tab: 'environments' },
        });
      }
    },
  });
  return (
    <Modal
      opened
      onClose={onClose}
      title={former === undefined ? 'Create an environment' : `Rename ${former}`}
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <form onSubmit={form.onSubmit((values) => save.mutate(values))}>
        <Stack>
          <TextInput
            label="Name"
            placeholder="staging"
            required
            data-autofocus
            {...form.getInputProps('name')}
          />
          {former !== undefined && (
            <Text size="sm" c="dimmed">
              Its keys stay good. Addresses of the dashboard that name it change.
            </Text>
          )}
          {save.isError && <FaultNotice error={save.error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button type="submit" loading={save.isPending}>
              {former === undefined ? 'Create it' : 'Rename it'}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
