import { Code, Group } from '@mantine/core';
import { CopyButton } from './CopyButton.tsx';

/** A value with a copy button, on one line, truncated if it is too long. */
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
