import { Badge } from '@mantine/core';
import type { Health } from './queries.ts';

export const states: Record<Health['state'], { color: string; word: string }> = {
  healthy: { color: 'green', word: 'Healthy' },
  unverified: { color: 'gray', word: 'Unverified' },
  scopes_missing: { color: 'yellow', word: 'Scopes missing' },
  provider_unavailable: { color: 'yellow', word: 'Provider unavailable' },
  integration_error: { color: 'orange', word: 'Integration error' },
  reconnect_needed: { color: 'red', word: 'Reconnect needed' },
  blocked: { color: 'red', word: 'Blocked' },
};

/** The state of a connection as a word and a color. */
export function HealthBadge({ health: { state } }: { health: Pick<Health, 'state'> }) {
  // During an upgrade, an older node may respond without the state.
  const { color, word } = states[state] ?? { color: 'gray', word: 'Unknown' };
  return (
    <Badge color={color} variant="dot" miw="max-content">
      {word}
    </Badge>
  );
}
