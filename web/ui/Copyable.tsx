import { Code, Group } from '@mantine/core';
import { CopyButton } from './CopyButton.tsx';

/** A value that somebody will paste elsewhere: in one line, cut where there is no room, with its button. */
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
