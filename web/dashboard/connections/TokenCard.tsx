import { Card, Group, Progress, Stack, Text, Title } from '@mantine/core';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { useNow } from '../../ui/time.ts';
import type { Connection } from './queries.ts';

/** How long the access token still lives, and the grant where the provider ends it on a day. */
export function TokenCard({ token, health: { status } }: Pick<Connection, 'token' | 'health'>) {
  const isActive = status === 'active';
  return (
    <Card>
      <Title order={2} mb="xs">
        Token
      </Title>
      {token === null || token.expires_at === null ? (
        <Text size="sm" c="dimmed">
          These credentials do not expire by themselves.
        </Text>
      ) : (
        <Stack gap="xs">
          <LifeBar from={token.refreshed_at} until={token.expires_at} isActive={isActive} />
          <Text size="sm" c="dimmed">
            {isActive
              ? 'It is refreshed by itself with the next call that needs it.'
              : 'It cannot be refreshed: the account has to be connected again.'}
          </Text>
          {token.refresh_expires_at !== null && (
            <Text size="sm">
              The grant itself ends <RelativeTime at={token.refresh_expires_at} fw={550} />.
            </Text>
          )}
        </Stack>
      )}
    </Card>
  );
}

function LifeBar({ from, until, isActive }: { from: string; until: string; isActive: boolean }) {
  const nowMs = useNow();
  const [fromMs, untilMs] = [Date.parse(from), Date.parse(until)];
  const left = Math.min(1, Math.max(0, (untilMs - nowMs) / Math.max(1, untilMs - fromMs)));
  return (
    <>
      <Progress
        value={left * 100}
        size="lg"
        color={!isActive || left === 0 ? 'gray' : left > 0.25 ? 'teal' : 'yellow'}
        aria-label={`${Math.round(left * 100)} percent of its life left`}
      />
      <Group justify="space-between" gap="xs">
        <Text size="sm">
          refreshed <RelativeTime at={from} />
        </Text>
        <Text size="sm">
          {untilMs > nowMs ? 'expires' : 'expired'} <RelativeTime at={until} />
        </Text>
      </Group>
    </>
  );
}
