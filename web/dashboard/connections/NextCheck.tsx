import { Button, Group, Text } from '@mantine/core';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { useNow } from '../../ui/time.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { useChange } from '../use-change.ts';

/** When the provider is asked again automatically, and a button that asks it now. */
export function NextCheck({
  at,
  check,
  stale,
  done,
}: {
  /** Null if there is no automatic check. */
  at: string | null;
  check: () => Promise<void>;
  /** The keys of the queries to fetch again. */
  stale: string[][];
  done?: string;
}) {
  const mayWrite = useMayWrite();
  const nowMs = useNow();
  const again = useChange(check, { stale, failed: 'Still rejected', ...(done !== undefined && { done }) });
  return (
    <Group gap="xs" mt={6}>
      {at !== null && (
        <Text size="sm">
          Next automatic check {Date.parse(at) > nowMs ? <RelativeTime at={at} /> : 'within minutes'}.
        </Text>
      )}
      {mayWrite && (
        <Button size="compact-sm" variant="default" loading={again.isPending} onClick={() => again.mutate()}>
          Check again
        </Button>
      )}
    </Group>
  );
}
