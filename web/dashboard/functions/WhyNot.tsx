import { Text } from '@mantine/core';
import type { Sync } from './queries.ts';

/** Why a sync does not run, or what its last run failed by; nothing where all is well. */
export function WhyNot({ sync: { held, last_run: last, failures, state } }: { sync: Sync }) {
  if (held !== null) {
    return (
      <Text size="xs" c="var(--mantine-color-orange-light-color)" className="wrap" mt={2}>
        {held.message}
      </Text>
    );
  }
  if (failures === 0 || last === null || last.error === null || state === 'running') return null;
  return (
    <Text size="xs" c="var(--mantine-color-red-light-color)" className="wrap" lineClamp={2} mt={2}>
      {failures > 1 && `${failures.toLocaleString()} times: `}
      {last.error.message}
    </Text>
  );
}
