import { TextInput, type TextInputProps } from '@mantine/core';
import { useDebouncedCallback } from '@mantine/hooks';
import { useEffect, useRef, useState } from 'react';

/**
 * A text that stands in the address: told once typing pauses, without the space around it, and undefined where nothing
 * is left. It keeps the focus and what is typed meanwhile, and follows a value that was set elsewhere, such as by "Show
 * all". Never give it a key of its value: who types slowly would lose the field after the first letter.
 */
export function FilterField({
  value,
  onSettle,
  ...input
}: {
  value: string | undefined;
  onSettle: (value: string | undefined) => void;
} & Omit<TextInputProps, 'value' | 'onChange'>) {
  const current = value ?? '';
  const [typed, setTyped] = useState(current);
  // Told, and not yet come back in the address.
  const told = useRef<string[]>([]);
  const settle = useDebouncedCallback((given: string) => {
    const next = given.trim();
    if (next === (told.current.at(-1) ?? current)) return;
    told.current.push(next);
    onSettle(next || undefined);
  }, 250);
  const known = useRef(current);
  useEffect(() => {
    if (current === known.current) return;
    known.current = current;
    const at = told.current.indexOf(current);
    told.current = told.current.slice(at + 1);
    if (at >= 0) return;
    told.current = [];
    settle.cancel();
    setTyped(current);
  }, [current, settle]);
  return (
    <TextInput
      {...input}
      value={typed}
      onChange={({ currentTarget }) => {
        setTyped(currentTarget.value);
        settle(currentTarget.value);
      }}
    />
  );
}
