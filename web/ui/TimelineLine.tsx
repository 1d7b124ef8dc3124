import { Group, Text } from '@mantine/core';
import type { ReactNode } from 'react';

/** An entry of a timeline: on one line where its width allows that, with the time at the end or below. */
export function TimelineLine({
  title,
  detail,
  time,
}: {
  title: ReactNode;
  detail?: ReactNode;
  time: ReactNode;
}) {
  return (
    <Group justify="space-between" align="flex-start" gap="0 10px" component="span" fz="sm" lh="sm">
      <Group component="span" align="flex-start" gap="0 8px" flex="1 1 170px" miw={0}>
        <Text span inherit fw={550}>
          {title}
        </Text>
        {detail && (
          <Text span inherit c="dimmed" fw={400} flex="1 1 110px" miw={0} className="wrap">
            {detail}
          </Text>
        )}
      </Group>
      <Text span inherit c="dimmed" fw={400} className="unbroken">
        {time}
      </Text>
    </Group>
  );
}
