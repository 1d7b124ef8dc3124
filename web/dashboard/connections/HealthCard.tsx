import { Alert, Code, Stack, Text } from '@mantine/core';
import { IconAlertTriangle, IconCircleX } from '@tabler/icons-react';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { sentence } from '../../ui/words.ts';
import type { Health } from './queries.ts';

/** Why a connection is not well, since when, and what to do. Nothing at all where it is. */
export function HealthCard({ health }: { health: Health }) {
  if (health.cause === null && health.warnings.length === 0) return null;
  const isDead = health.status !== 'active';
  return (
    <Stack gap="sm">
      {health.cause !== null && (
        <Alert
          color={isDead ? 'red' : 'orange'}
          icon={isDead ? <IconCircleX size={18} /> : <IconAlertTriangle size={18} />}
          title={
            <>
              {sentence(health.cause)}
              {health.since !== null && (
                <Text span size="sm" c="dimmed" fw={400}>
                  {' '}
                  since <RelativeTime at={health.since} />
                </Text>
              )}
            </>
          }
        >
          <Stack gap={4}>
            {health.next_step !== null && <Text size="sm">{health.next_step}</Text>}
            <Evidence of={health.evidence} />
          </Stack>
        </Alert>
      )}
      {health.warnings.map((warning) => (
        <Alert
          key={warning.code}
          color="yellow"
          icon={<IconAlertTriangle size={18} />}
          title={
            <>
              {sentence(warning.code)}
              {warning.at !== null && (
                <Text span size="sm" c="dimmed" fw={400}>
                  {' · '}
                  <RelativeTime at={warning.at} />
                </Text>
              )}
            </>
          }
        >
          <Stack gap={4}>
            <Text size="sm">{warning.next_step}</Text>
            <Evidence of={warning.evidence} />
          </Stack>
        </Alert>
      ))}
    </Stack>
  );
}

function Evidence({ of }: { of: Record<string, string | number> | null }) {
  const entries = Object.entries(of ?? {});
  if (entries.length === 0) return null;
  return (
    <Text size="sm" c="dimmed" component="div">
      {entries.map(([name, value]) => (
        <Code key={name} mr={6} className="wrap">
          {name}: {String(value)}
        </Code>
      ))}
    </Text>
  );
}
