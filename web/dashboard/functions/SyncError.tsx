import { Text } from '@mantine/core';
import { heldText } from './advice.ts';
import type { Sync } from './queries.ts';

/** Why a sync does not run, or what its last run failed by; nothing where all is well. */
export function SyncError({
  sync: { held, held_deletes: deletes, last_run: last, failures, state },
}: {
  sync: Sync;
}) {
  if (held !== null) {
    return (
      <Text size="xs" c="var(--mantine-color-orange-light-color)" className="wrap" mt={2}>
        {held.message}
      </Text>
    );
  }
  if (failures === 0 || last === null || last.error === null || state === 'running') return null;
  if (last.error.code === 'mass_delete_held') {
    return (
      <Text size="xs" c="var(--mantine-color-red-light-color)" className="wrap" mt={2}>
        {heldText(last.error.message)}
        {deletes !== undefined && ' Decide in the menu of the sync.'}
      </Text>
    );
  }
  return (
    <Text size="xs" c="var(--mantine-color-red-light-color)" className="wrap" lineClamp={2} mt={2}>
      {failures > 1 && `${failures.toLocaleString()} times: `}
      {last.error.message}
    </Text>
  );
}
