import { Button, Group, Modal, Stack, Textarea, TextInput } from '@mantine/core';
import { useForm } from '@mantine/form';
import type { UseMutationResult } from '@tanstack/react-query';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import type { NewVariable, Variable } from './queries.ts';

/** A new variable, or another value for one. */
export function VariableDialog({
  name,
  known,
  mutation,
  onClose,
}: {
  /** The one to set; undefined adds one. */
  name: string | undefined;
  known: Variable[];
  mutation: UseMutationResult<unknown, Error, NewVariable>;
  onClose: () => void;
}) {
  const close = () => {
    mutation.reset();
    onClose();
  };
  const form = useForm({
    initialValues: { name: name ?? '', value: '' },
    validate: {
      name: (given) => {
        if (!/^[A-Za-z_][A-Za-z0-9_]{0,254}$/.test(given))
          return 'Letters, digits and _, not beginning with a digit';
        return name === undefined && known.some((one) => one.name === given) ? 'There is one already' : null;
      },
    },
  });
  return (
    <Modal
      opened
      onClose={close}
      title={name === undefined ? 'Add a variable' : `Set ${name}`}
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <form onSubmit={form.onSubmit((given) => mutation.mutate(given, { onSuccess: close }))}>
        <Stack>
          {name === undefined && (
            <TextInput
              label="Name"
              placeholder="API_BASE"
              required
              data-autofocus
              {...form.getInputProps('name')}
            />
          )}
          <Textarea
            label="Value"
            description="It is not shown again"
            autosize
            minRows={2}
            maxRows={10}
            maxLength={65_536}
            spellCheck={false}
            {...(name !== undefined && { 'data-autofocus': true })}
            {...form.getInputProps('value')}
          />
          {mutation.isError && <FaultNotice error={mutation.error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={close}>
              Cancel
            </Button>
            <Button type="submit" loading={mutation.isPending}>
              Save
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
