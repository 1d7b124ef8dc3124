import { Code, Group } from '@mantine/core';
import { CopyButton } from './CopyButton.tsx';

/** A value to be pasted elsewhere: in one line, cut if the space is too small, with a copy button. */
export function Copyable({ value, what }: { value: string; what: string }) {
  return (
    <Group gap={4} wrap="nowrap" miw={0}>
      <Code className="cut" title={value}>
        {value}
      </Code>
      <CopyButton value={value} what={what} />
    </Group>
  );
}
