import { Anchor, Badge, Card, Group, Progress, Stack, Text, Title } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import type { Usage } from './queries.ts';

type Quota = Usage['quota'][number];

/** How many connections there are and how they are, and how much of the client's quota is used. */
export function UsageCard({
  environment,
  integration,
  usage,
}: {
  environment: string;
  integration: string;
  usage: Usage;
}) {
  return (
    <Card>
      <Stack>
        <Group justify="space-between">
          <Title order={2}>Connections</Title>
          <Anchor
            size="sm"
            renderRoot={(props) => (
              <Link
                to="/$environment/connections"
                params={{ environment }}
                search={{ integration }}
                {...props}
              />
            )}
          >
            All of them
          </Anchor>
        </Group>
        <Shares connections={usage.connections} />
        {usage.quota.length > 0 && (
          <>
            <Title order={3}>Quota of the client</Title>
            {usage.quota.map((quota) => (
              <QuotaBar key={quota.name} quota={quota} />
            ))}
          </>
        )}
      </Stack>
    </Card>
  );
}

function Shares({ connections: { total, active, needs_reauth, blocked } }: Pick<Usage, 'connections'>) {
  if (total === 0) {
    return (
      <Text size="sm" c="dimmed">
        Nobody has connected an account yet.
      </Text>
    );
  }
  const shares = [
    { name: 'active', count: active, color: 'teal' },
    { name: 'need reconnecting', count: needs_reauth, color: 'red' },
    { name: 'blocked', count: blocked, color: 'orange' },
  ].filter(({ count }) => count > 0);
  return (
    <Stack gap="xs">
      <Progress.Root size={10} aria-hidden>
        {shares.map(({ name, count, color }) => (
          <Progress.Section key={name} value={(count / total) * 100} color={color} />
        ))}
      </Progress.Root>
      <Group gap="md">
        {shares.map(({ name, count, color }) => (
          <Text key={name} size="sm">
            <Text span c={`${color}.6`} aria-hidden>
              ■
            </Text>{' '}
            {count.toLocaleString()} {name}
          </Text>
        ))}
      </Group>
    </Stack>
  );
}

function QuotaBar({ quota: { name, limit, window_s, used, closed_until } }: { quota: Quota }) {
  const share = Math.min(1, used / limit);
  const window = window_s === 60 ? 'minute' : `${window_s} seconds`;
  return (
    <Stack gap={4}>
      <Group justify="space-between" gap="xs">
        <Text size="sm">{inWords(name)}</Text>
        <Text size="sm" c="dimmed">
          {used.toLocaleString()} of {limit.toLocaleString()} in the last {window}
        </Text>
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
