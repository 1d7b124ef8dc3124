import { Box, Group, Text } from '@mantine/core';
import type { ReactNode } from 'react';

export type Span = {
  key: string;
  label: ReactNode;
  /** A color of the theme, such as `teal.6`. */
  color: string;
  startMs: number;
  durationMs: number;
};

/** Spans over the time from `fromMs` to `untilMs`, one in a row. */
export function Waterfall({
  label,
  spans,
  fromMs,
  untilMs,
  format,
}: {
  /** Read by screen readers. */
  label: string;
  spans: Span[];
  fromMs: number;
  untilMs: number;
  format: (ms: number) => string;
}) {
  const wholeMs = Math.max(untilMs - fromMs, 1);
  const share = (ms: number) => `${Math.min(Math.max(ms / wholeMs, 0), 1) * 100}%`;
  return (
    <>
      <div className="waterfall-row" aria-hidden>
        <span />
        <Group justify="space-between" c="dimmed" fz="xs">
          <span>0</span>
          <span>{format(wholeMs)}</span>
        </Group>
      </div>
      <ol className="plain-list" aria-label={label}>
        {spans.map(({ key, label: name, color, startMs, durationMs }) => (
          <li key={key} className="waterfall-row">
            <Text size="sm" component="div" truncate>
              {name}
            </Text>
            <div className="waterfall-track" aria-hidden>
              <Box bg={color} left={share(startMs - fromMs)} w={share(durationMs)} />
            </div>
            <Text size="sm" ta="right" className="unbroken">
              {format(durationMs)}
            </Text>
          </li>
        ))}
      </ol>
    </>
  );
}
