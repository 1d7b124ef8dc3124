import { useLocalStorage } from '@mantine/hooks';
import { pages } from './pages.ts';

/** What the key beside the space bar is called on the machine that looks. */
export const commandKey = /Mac|iPhone|iPad/.test(navigator.userAgent) ? '⌘' : 'Ctrl';

/** Whether keys without Ctrl do something; who dictates or presses keys by accident can switch them off (WCAG 2.1.4). */
export function useSingleKeys(): [isOn: boolean, setOn: (isOn: boolean) => void] {
  const [isOn, setOn] = useLocalStorage({ key: 'trellis-single-keys', defaultValue: true });
  return [isOn, setOn];
}

/** The letter that leads to each page after G: the first of its name, or the first one in it that is free. */
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
