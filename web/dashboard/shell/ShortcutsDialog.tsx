import { Group, Kbd, Stack, Switch, Text } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { useEffect } from 'react';
import { Dialog } from '../../ui/Dialog.tsx';
import { pages } from './pages.ts';
import { commandKey, letters, useSingleKeys } from './shortcuts.ts';

/** The list of the keyboard shortcuts. Each call opens it. */
export function ShortcutsDialog({ calls }: { calls: number }) {
  const [isOpen, { open, close }] = useDisclosure();
  // biome-ignore lint/correctness/useExhaustiveDependencies: a call opens it
  useEffect(open, [calls]);
  const [isOn, setOn] = useSingleKeys();
  const list: { keys: string[]; does: string }[] = [
    {
      keys: [commandKey, 'K'],
      does: 'Search pages, settings, integrations, connections, datasets, functions',
    },
    ...(isOn
      ? [
          { keys: ['/'], does: 'Search' },
          { keys: ['?'], does: 'Show this list' },
          ...pages.map(({ label }, index) => ({
            keys: ['G', (letters[index] ?? '').toUpperCase()],
            does: label,
          })),
        ]
      : []),
    { keys: ['Esc'], does: 'Close a dialog or menu' },
  ];
  return (
    <Dialog opened={isOpen} onClose={close} title="Keyboard shortcuts">
      <Stack gap="xs">
        {list.map(({ keys, does }) => (
          <Group key={does} justify="space-between" wrap="nowrap">
            <Text size="sm">{does}</Text>
            <Group gap={4} wrap="nowrap">
              {keys.map((key) => (
                <Kbd key={key}>{key}</Kbd>
              ))}
            </Group>
          </Group>
        ))}
        <Switch
          mt="sm"
          label="Single-key shortcuts"
          description="Turn them off if you press keys by accident. They are ignored while you type in a field."
          checked={isOn}
          onChange={({ currentTarget }) => setOn(currentTarget.checked)}
        />
      </Stack>
    </Dialog>
  );
}
