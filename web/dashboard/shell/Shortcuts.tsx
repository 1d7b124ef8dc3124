import { Group, Kbd, Stack, Switch, Text } from '@mantine/core';
import { type HotkeyItem, useHotkeys, useLocalStorage } from '@mantine/hooks';
import { useNavigate } from '@tanstack/react-router';
import { useRef } from 'react';
import { Dialog } from '../../ui/Dialog.tsx';
import { useEnvironment } from './environment.ts';
import { pages } from './pages.ts';

/** The time after G in which the letter of a page counts. */
const patienceMs = 1_500;

/** The keyboard shortcuts of every page, and their list. */
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
    <Dialog opened={isOpen} onClose={onClose} title="Keyboard shortcuts">
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

/** The name of the command key on this system. */
export const commandKey = /Mac|iPhone|iPad/.test(navigator.userAgent) ? '⌘' : 'Ctrl';

/**
 * Whether single-key shortcuts are on; they can be turned off, for speech input and accidental key presses (WCAG
 * 2.1.4).
 */
export function useSingleKeys(): [isOn: boolean, setOn: (isOn: boolean) => void] {
  const [isOn, setOn] = useLocalStorage({ key: 'trellis-single-keys', defaultValue: true });
  return [isOn, setOn];
}

/** The letter of each page after G: its first letter, or the first unused letter of its name. */
export const letters = lettersFor(pages.map(({ label }) => label.toLowerCase()));

function lettersFor(labels: string[]): string[] {
  const taken = new Set(['g']);
  const takeFrom = (letters: string) => {
    const letter = [...letters].find((one) => /[a-z]/.test(one) && !taken.has(one));
    if (letter !== undefined) taken.add(letter);
    return letter;
  };
  const initials = labels.map((label) => takeFrom(label.charAt(0)));
  return labels.map((label, index) => initials[index] ?? takeFrom(label) ?? '');
}
