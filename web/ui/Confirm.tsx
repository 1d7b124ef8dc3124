import { Stack } from '@mantine/core';
import type { UseMutationResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Dialog, DialogEnd } from './Dialog.tsx';

/** Asks for confirmation of an act that cannot be undone; `act` is the text of its button. Closes when it is done. */
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
  /** The subject of the act. The dialog is closed while it is undefined. */
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
    <Dialog opened={given !== undefined} onClose={close} title={title}>
      <Stack>
        {children}
        <DialogEnd
          act={act}
          attempt={mutation}
          button={{ color: 'red' }}
          onClose={close}
          onAct={() => given !== undefined && mutation.mutate(given, { onSuccess: close })}
        />
      </Stack>
    </Dialog>
  );
}
