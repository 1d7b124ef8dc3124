import { Alert, Button, Code, Group, Stack, Text } from '@mantine/core';
import { CopyButton } from '../../../ui/CopyButton.tsx';
import { RelativeTime } from '../../../ui/RelativeTime.tsx';

/** A link for somebody else, which nobody is shown again. */
export function LinkStep({
  link,
  expiresAt,
  isMailed,
  onDone,
}: {
  link: string;
  expiresAt: string;
  isMailed: boolean;
  onDone: () => void;
}) {
  return (
    <Stack>
      <Alert
        color={isMailed ? 'green' : 'yellow'}
        title={isMailed ? 'It is on its way by mail' : 'Pass it on now'}
      >
        <Text size="sm">
          The link is shown this once. It is good for one use and ends <RelativeTime at={expiresAt} />.
        </Text>
      </Alert>
      <Code block tabIndex={0} className="broken" data-testid="link">
        {link}
      </Code>
      <Group justify="flex-end">
        <CopyButton value={link} what="the link" label="Copy" />
        <Button onClick={onDone}>Done</Button>
      </Group>
    </Stack>
  );
}
