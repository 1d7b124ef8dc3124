import { Button, Stack } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import type { ReactNode } from 'react';
import { Dialog } from '../ui/Dialog.tsx';
import { IconCode } from '../ui/icons.tsx';

/** Opens a dialog with snippets. */
export function CodeButton({ label = 'Code', children }: { label?: string; children: ReactNode }) {
  const [isOpen, { open, close }] = useDisclosure();
  return (
    <>
      <Button variant="default" leftSection={<IconCode size={16} />} onClick={open}>
        {label}
      </Button>
      <Dialog opened={isOpen} onClose={close} title="Call from your code" size="xl">
        <Stack>{children}</Stack>
      </Dialog>
    </>
  );
}
