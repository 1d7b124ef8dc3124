import { Alert, Button, Code, Group, Modal, Stack, Text } from '@mantine/core';
import { IconAlertTriangle } from '@tabler/icons-react';
import { CopyButton } from '../../../ui/CopyButton.tsx';
import type { NewKey } from './queries.ts';

/** The secret of a new key, which nobody is shown again. A click beside it does not close it. */
export function KeySecret({ made, onClose }: { made: NewKey; onClose: () => void }) {
  return (
    <Modal
      opened
      onClose={onClose}
      closeOnClickOutside={false}
      closeOnEscape={false}
      withCloseButton={false}
      title={`The key ${made.name}`}
    >
      <Stack>
        <Alert
          color="yellow"
          icon={<IconAlertTriangle size={18} />}
          title="Copy it now: it is shown this once"
        >
          <Text size="sm">The service stores only a hash of it. If you lose the key, make another one.</Text>
        </Alert>
        <Code block tabIndex={0} className="broken" data-testid="secret">
          {made.secret}
        </Code>
        <Group justify="flex-end">
          <CopyButton value={made.secret} what="the key" label="Copy" />
          <Button onClick={onClose}>I have kept it</Button>
        </Group>
      </Stack>
    </Modal>
  );
}
