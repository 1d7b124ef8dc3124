import { Code, Group, Stack, Text } from '@mantine/core';
import { IconDatabase } from '@tabler/icons-react';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import type { At } from '../connections/queries.ts';

/** How records come to a connection that has none. */
export function NoRecords({ at }: { at: At }) {
  const command = [
    `curl -s ${location.origin}/records`,
    `-H "Authorization: Bearer $KEY"`,
    `-H 'Content-Type: application/json'`,
    `-H ${quoted(`Provider-Config-Key: ${at.integration}`)}`,
    `-H ${quoted(`Connection-Id: ${at.id}`)}`,
    `-d '{"model":"City","records":[{"id":7,"city":"Oslo"}]}'`,
  ].join(' \\\n  ');
  return (
    <EmptyState
      icon={<IconDatabase size={26} />}
      title="No records yet"
      action={
        <Stack gap={4} ta="left" w="100%">
          <Group justify="space-between">
            <Text size="sm">A first record, from your shell</Text>
            <CopyButton value={command} what="the command" />
          </Group>
          <Code block tabIndex={0}>
            {command}
          </Code>
        </Stack>
      }
    >
      A function that syncs saves its records here by itself. Your application saves them with{' '}
      <Code>POST /records</Code> and a key that has the scope <Code>records:write</Code>.
    </EmptyState>
  );
}

/** As a shell reads it. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
