import { Text, Timeline } from '@mantine/core';
import type { ReactNode } from 'react';

/** Numbered steps; without a title, the text stands beside the number. */
export function Steps({ steps }: { steps: readonly { title?: string; body: ReactNode }[] }) {
  return (
    <Timeline bulletSize={26} lineWidth={2} active={-1}>
      {steps.map(({ title, body }, index) => (
        <Timeline.Item
          key={title ?? index}
          title={title}
          bullet={
            <Text size="xs" fw={600}>
              {index + 1}
            </Text>
          }
        >
          <Text size="sm" component="div" c="dimmed" pt={title === undefined ? 3 : 0}>
            {body}
          </Text>
        </Timeline.Item>
      ))}
    </Timeline>
  );
}
