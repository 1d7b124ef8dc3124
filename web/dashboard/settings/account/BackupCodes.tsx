import { Alert, Button, Code, Group, SimpleGrid, Stack, Text } from '@mantine/core';
import { IconAlertTriangle, IconDownload } from '@tabler/icons-react';
import { useMemo } from 'react';
import { CopyButton } from '../../../ui/CopyButton.tsx';

/** Backup codes, which nobody is shown again. */
export function BackupCodes({ codes, onDone }: { codes: string[]; onDone: () => void }) {
  const text = codes.join('\n');
  const href = useMemo(() => `data:text/plain;charset=utf-8,${encodeURIComponent(`${text}\n`)}`, [text]);
  return (
    <Stack gap="sm">
      <Alert
        color="yellow"
        icon={<IconAlertTriangle size={18} />}
        title="Keep these now: they are shown once"
      >
        <Text size="sm">
          Each signs you in once, in place of a code, when the phone is not there. Former ones have ended.
        </Text>
      </Alert>
      <SimpleGrid cols={{ base: 2, xs: 3, sm: 5 }} spacing="xs">
        {codes.map((code) => (
          <Code key={code} ta="center" p={6}>
            {code}
          </Code>
        ))}
      </SimpleGrid>
      <Group gap="xs">
        <CopyButton value={text} what="the codes" label="Copy" />
        <Button
          component="a"
          variant="default"
          href={href}
          download="trellis-backup-codes.txt"
          leftSection={<IconDownload size={16} />}
        >
          Download
        </Button>
        <Button onClick={onDone}>I have kept them</Button>
      </Group>
    </Stack>
  );
}
