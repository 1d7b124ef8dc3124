import { type HotkeyItem, useHotkeys, useLocalStorage } from '@mantine/hooks';
import { useNavigate } from '@tanstack/react-router';
import { useRef } from 'react';
import { useEnvironment } from './environment.ts';
import { pages } from './pages.ts';

/** The time after G in which the letter of a page counts. */
const patienceMs = 1_500;

/** The single keys of every page: `?` for the list, and G with a letter for each page. */
export function useShortcuts(onList: () => void): void {
  const environment = useEnvironment();
  const navigate = useNavigate();
  const [isOn] = useSingleKeys();
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
  useHotkeys(isOn ? [['shift + ?', onList], ['?', onList], ...toPages, ['g', begin, typed]] : []);
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
