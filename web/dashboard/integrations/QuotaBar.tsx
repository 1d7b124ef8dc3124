import { Badge, Group, Progress, Stack, Text } from '@mantine/core';
import type { ReactNode } from 'react';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import type { Usage } from './queries.ts';

/** The used share of a limit of an OAuth client. `of` is before the name of the limit. */
export function QuotaBar({
  quota: { name, limit, window_s, used, closed_until },
  of,
}: {
  quota: Omit<Usage['quota'][number], 'counts'>;
  of?: ReactNode;
}) {
  const share = Math.min(1, used / limit);
  const window = window_s === 60 ? 'minute' : `${window_s} seconds`;
  return (
    <Stack gap={4}>
      <Group justify="space-between" gap="xs">
        <Text size="sm">
          {of}
          {inWords(name)}
        </Text>
        <Dimmed>
          {used.toLocaleString()} of {limit.toLocaleString()} in the last {window}
        </Dimmed>
      </Group>
      <Progress
        value={share * 100}
        color={share > 0.9 ? 'red' : share > 0.6 ? 'yellow' : 'teal'}
        aria-label={`${inWords(name)}: ${used} of ${limit}`}
      />
      {closed_until !== null && (
        <Badge color="red" variant="dot">
          Refused by the provider until <RelativeTime at={closed_until} />
        </Badge>
      )}
    </Stack>
  );
}

/** `ReadRequestsPerMinutePerProject` → "Read requests per minute per project". */
function inWords(name: string): string {
  const words = name.replaceAll(/(?<=[a-z])(?=[A-Z])/g, ' ').toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}
