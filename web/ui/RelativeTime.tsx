import { Text, type TextProps, Tooltip } from '@mantine/core';
import { exactTime, relativeTime, useNow } from './time.ts';

/** A relative time, with the exact time on hover. `never` is shown without a time. */
export function RelativeTime({
  at,
  never = 'never',
  ...text
}: { at: string | null; never?: string } & TextProps) {
  const nowMs = useNow();
  if (at === null) {
    return (
      <Text span inherit c="dimmed" {...text}>
        {never}
      </Text>
    );
  }
  return (
    <Tooltip label={exactTime(at)} withArrow>
      <Text span inherit {...text}>
        <time dateTime={at}>{relativeTime(Date.parse(at), nowMs)}</time>
      </Text>
    </Tooltip>
  );
}
