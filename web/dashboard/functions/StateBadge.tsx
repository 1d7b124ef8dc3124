import { Badge } from '@mantine/core';
import type { FunctionType, Run, Sync } from './queries.ts';
import { runStates, syncStates, types } from './words.ts';

export function TypeBadge({ type }: { type: FunctionType }) {
  const { label, color } = types[type];
  return (
    <Badge color={color} miw="max-content">
      {label}
    </Badge>
  );
}

export function RunBadge({ state }: { state: Run['state'] }) {
  const { label, color } = runStates[state];
  return (
    <Badge color={color} miw="max-content">
      {label}
    </Badge>
  );
}

/** The state of a sync. A sync whose function is off does not start. */
export function SyncBadge({ sync }: { sync: Pick<Sync, 'state' | 'enabled' | 'current_run'> | undefined }) {
  const { label, color } = wordsFor(sync);
  return (
    <Badge color={color} variant="dot" miw="max-content">
      {label}
    </Badge>
  );
}

function wordsFor(sync: Pick<Sync, 'state' | 'enabled' | 'current_run'> | undefined) {
  if (sync === undefined) return { label: 'Not started', color: 'gray' };
  if (sync.current_run?.state === 'waiting') return { label: 'Waiting to run', color: 'yellow' };
  if (!sync.enabled && sync.state !== 'running') return { label: 'Function is off', color: 'gray' };
  return syncStates[sync.state];
}
