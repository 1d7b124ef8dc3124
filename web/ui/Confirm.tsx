import { Button, Group, Modal, Stack } from '@mantine/core';
import type { UseMutationResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { FaultNotice } from './FaultNotice.tsx';

/** Asks before an act that cannot be taken back; `act` names it on the button. Closes by itself once it is done. */
export function Confirm<T>({
  title,
  act,
  given,
  mutation,
  onClose,
  children,
}: {
  title: string;
  act: string;
  /** What the act is about; undefined keeps the question closed. */
  given: T | undefined;
  mutation: UseMutationResult<unknown, Error, T>;
  onClose: () => void;
  children: ReactNode;
}) {
  const close = () => {
    mutation.reset();
    onClose();
  };
  return (
    <Modal
      opened={given !== undefined}
      onClose={close}
      title={title}
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <Stack>
        {children}
        {mutation.isError && <FaultNotice error={mutation.error} />}
        <Group justify="flex-end">
          <Button variant="default" onClick={close} data-autofocus>
            Cancel
          </Button>
          <Button
            color="red"
            loading={mutation.isPending}
            onClick={() => given !== undefined && mutation.mutate(given, { onSuccess: close })}
          >
            {act}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
