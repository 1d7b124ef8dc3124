import type { FunctionType, Run, Sync } from './queries.ts';

/** The labels and colors of states and types. */
export const types: Record<FunctionType, { label: string; color: string }> = {
  sync: { label: 'Sync', color: 'teal' },
  action: { label: 'Action', color: 'violet' },
  'on-event': { label: 'Event function', color: 'orange' },
};

export const runStates: Record<Run['state'], { label: string; color: string }> = {
  waiting: { label: 'Waiting', color: 'yellow' },
  running: { label: 'Running', color: 'trellis' },
  succeeded: { label: 'Succeeded', color: 'green' },
  failed: { label: 'Failed', color: 'red' },
  cancelled: { label: 'Cancelled', color: 'gray' },
};

export const syncStates: Record<Sync['state'], { label: string; color: string }> = {
  running: { label: 'Running', color: 'trellis' },
  active: { label: 'On time', color: 'green' },
  failing: { label: 'Failing', color: 'red' },
  held: { label: 'Held', color: 'orange' },
  paused: { label: 'Paused', color: 'gray' },
};

export const runKinds: Record<Run['kind'], string> = {
  sync: 'Sync',
  webhook: 'Webhook',
  action: 'Action',
  'on-event': 'Event function',
};

/** The trigger of a run. */
const triggers: Record<string, string> = {
  schedule: 'schedule',
  manual: 'manual, or an API call',
  deploy: 'deploy',
  webhook: 'webhook of the provider',
  connection: 'event of the connection',
  action: 'API call',
  resume: 'earlier run',
};
export const triggerWords = (trigger: string): string => triggers[trigger] ?? trigger;

const occasions: Record<string, string> = {
  'post-connection-creation': 'after a connection is made',
  'pre-connection-deletion': 'before a connection is deleted',
  'validate-connection': 'before a connection is stored',
};

/** When a function runs. */
export function whenOf({
  type,
  runs,
  event,
}: {
  type: FunctionType;
  runs?: string | undefined;
  event?: string | undefined;
}): string {
  if (type === 'action') return 'when it is called';
  if (type === 'on-event') return occasions[event ?? ''] ?? String(event);
  return withEvery(runs ?? '');
}

/** The frequency with `every` in front: `5m` → "every 5m". */
export function withEvery(frequency: string): string {
  return /^every /i.test(frequency) ? frequency : `every ${frequency}`;
}

/** "412 ms", "12.4 s", "3 min 20 s", "2 h 5 min". */
export function formatDuration(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1_000);
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} min`;
}
