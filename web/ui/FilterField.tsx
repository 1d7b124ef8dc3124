import { TextInput, type TextInputProps } from '@mantine/core';
import { useDebouncedCallback } from '@mantine/hooks';
import { useEffect, useRef, useState } from 'react';

/**
 * A text filter whose value is in the address. Reports the trimmed value when typing pauses, undefined if it is empty.
 * It keeps the focus and the text while typing, and follows a value that is set elsewhere, such as by "Show all". It
 * must not have its value as its key: the field would lose the focus after the first letter.
 */
export function FilterField({
  value,
  onSettle,
  ...input
}: { value: string | undefined; onSettle: (value: string | undefined) => void } & Omit<
  TextInputProps,
  'value' | 'onChange'
>) {
  const current = value ?? '';
  const [typed, setTyped] = useState(current);
  // Values that were reported and are not in the address yet.
  const reported = useRef<string[]>([]);
  const settle = useDebouncedCallback((given: string) => {
    const next = given.trim();
    if (next === (reported.current.at(-1) ?? current)) return;
    reported.current.push(next);
    onSettle(next || undefined);
  }, 250);
  const known = useRef(current);
  useEffect(() => {
    if (current === known.current) return;
    known.current = current;
    const at = reported.current.indexOf(current);
    reported.current = reported.current.slice(at + 1);
    if (at >= 0) return;
    reported.current = [];
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
