import { Badge } from '@mantine/core';
import type { Health } from './queries.ts';

/** The state of a connection as a word and a color. */
export function HealthBadge({ health }: { health: Pick<Health, 'status' | 'kind' | 'missing_scopes'> }) {
  const { color, word } = wordsFor(health);
  return (
    <Badge color={color} variant="dot" miw="max-content">
      {word}
    </Badge>
  );
}

function wordsFor({ status, kind, missing_scopes }: Pick<Health, 'status' | 'kind' | 'missing_scopes'>): {
  color: string;
  word: string;
} {
  if (status === 'blocked') return { color: 'red', word: 'Blocked' };
  if (status === 'needs_reauth') return { color: 'red', word: 'Reconnect needed' };
  if (kind === 'integration') return { color: 'orange', word: 'Integration error' };
  if (kind === 'transient') return { color: 'yellow', word: 'Provider unavailable' };
  if (missing_scopes.length > 0) return { color: 'yellow', word: 'Scopes missing' };
  return { color: 'green', word: 'Healthy' };
}
