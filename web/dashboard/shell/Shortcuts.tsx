import { Group, Kbd, Modal, Stack, Switch, Text } from '@mantine/core';
import { type HotkeyItem, useHotkeys } from '@mantine/hooks';
import { useNavigate } from '@tanstack/react-router';
import { useRef } from 'react';
import { useEnvironment } from './environment.ts';
import { commandKey, letters, useSingleKeys } from './keys.ts';
import { pages } from './pages.ts';

/** How long after G the letter of a page counts. */
const patienceMs = 1_500;

/** The keys that work on every page, and a list of them. */
export function Shortcuts({
  isOpen,
  onOpen,
  onClose,
}: {
  isOpen: boolean;
  onOpen: () => void;
  onClose: () => void;
}) {
  const environment = useEnvironment();
  const navigate = useNavigate();
  const [isOn, setOn] = useSingleKeys();
  const begunAt = useRef(Number.NEGATIVE_INFINITY);
  const typed = { preventDefault: false };
  const toPages = pages.map(({ to }, index): HotkeyItem => {
    const go = () => {
      if (performance.now() - begunAt.current < patienceMs) void navigate({ to, params: { environment } });
    };
    return [letters[index] ?? '', go, typed];
  });
  const begin = () => {
    begunAt.current = performance.now();
  };
  useHotkeys(isOn ? [['shift + ?', onOpen], ['?', onOpen], ...toPages, ['g', begin, typed]] : []);
  const list: { keys: string[]; does: string }[] = [
    { keys: [commandKey, 'K'], does: 'Search pages, integrations, connections, datasets' },
    ...(isOn
      ? [
          { keys: ['/'], does: 'Search, too' },
          { keys: ['?'], does: 'This list' },
          ...pages.map(({ label }, index) => ({
            keys: ['G', (letters[index] ?? '').toUpperCase()],
            does: label,
          })),
        ]
      : []),
    { keys: ['Esc'], does: 'Close what is open' },
  ];
  return (
    <Modal
      opened={isOpen}
      onClose={onClose}
      title="Keyboard shortcuts"
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
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
          label="Keys without Ctrl"
          description="Switch them off where they get in your way. They never work while you type in a field."
          checked={isOn}
          onChange={({ currentTarget }) => setOn(currentTarget.checked)}
        />
      </Stack>
    </Modal>
  );
}
