import { Badge, Card, Group, Progress, SimpleGrid, Stack, Text, Title } from '@mantine/core';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { Fact, Facts } from '../../ui/Facts.tsx';
import { IconCheck, IconX } from '../../ui/icons.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { useNow } from '../../ui/time.ts';
import { AnchorLink, integrationPage } from '../links.tsx';
import { useEnvironment } from '../shell/environment.ts';
import type { Connection, WholeConnection } from './queries.ts';

/** The lifetime of the token, the account and the scopes of a connection. */
export function AuthorizationTab({ connection }: { connection: WholeConnection }) {
  const { token, scopes, health } = connection;
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
      <Stack gap="lg">
        <TokenCard token={token} health={health} />
        <CredentialsCard connection={connection} />
      </Stack>
      <ScopesCard scopes={scopes} health={health} />
    </SimpleGrid>
  );
}

function CredentialsCard({
  connection: { account, token, integration_id: key },
}: {
  connection: WholeConnection;
}) {
  const environment = useEnvironment();
  return (
    <Card>
      <Title order={2} mb="xs">
        Credentials
      </Title>
      <Facts>
        <Fact name="Account">{account?.email ?? 'unknown'}</Fact>
        <Fact name="Account ID">{account?.id ?? 'unknown'}</Fact>
        <Fact name="Integration">
          <AnchorLink inherit {...integrationPage(environment, key)}>
            {key}
          </AnchorLink>
        </Fact>
        <Fact name="Last refresh">
          <RelativeTime at={token?.refreshed_at ?? null} never="never" />
        </Fact>
      </Facts>
    </Card>
  );
}

const renewals: Partial<Record<Connection['health']['status'], string>> = {
  needs_reauth: 'The token cannot be refreshed. Reconnect the account.',
  blocked: 'The token is not refreshed while the connection is blocked. Trellis retries automatically.',
};

/** The lifetime of the access token, and of the grant if the provider limits it. */
function TokenCard({ token, health: { status } }: Pick<Connection, 'token' | 'health'>) {
  const isActive = status === 'active';
  return (
    <Card>
      <Title order={2} mb="xs">
        Token
      </Title>
      {token === null || token.expires_at === null ? (
        <Dimmed>These credentials have no known expiry.</Dimmed>
      ) : (
        <Stack gap="xs">
          <LifeBar from={token.refreshed_at} until={token.expires_at} isActive={isActive} />
          <Dimmed>{renewals[status] ?? 'The next call that needs the token refreshes it.'}</Dimmed>
          {token.refresh_expires_at !== null && (
            <Text size="sm">
              The grant expires <RelativeTime at={token.refresh_expires_at} fw={550} />.
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

/** The requested and the granted scopes. Grey if the grant has ended. */
function ScopesCard({ scopes, health }: Pick<Connection, 'scopes' | 'health'>) {
  const isActive = health.status === 'active';
  const granted = isActive ? 'granted' : 'was granted';
  const requested = scopes?.requested ?? [];
  const extra = scopes?.granted.filter((scope) => !requested.includes(scope)) ?? [];
  return (
    <Card>
      <Title order={2} mb="xs">
        Scopes
      </Title>
      {requested.length + extra.length === 0 ? (
        <Dimmed>{scopes === null ? 'This kind of connection has no scopes.' : 'No scopes are known.'}</Dimmed>
      ) : (
        <Stack gap={8}>
          {[...requested, ...extra].map((scope) => {
            const isMissing = health.missing_scopes.includes(scope);
            const Icon = isMissing ? IconX : IconCheck;
            const color = isMissing ? 'red-text' : isActive ? 'green-text' : 'dimmed';
            return (
              <Group key={scope} gap="xs" wrap="nowrap" align="flex-start">
                <Icon
                  size={18}
                  className="rigid"
                  color={`var(--mantine-color-${color})`}
                  aria-label={isMissing ? 'not granted' : granted}
                />
                <Text size="sm" ff="monospace" className="wrap" miw={0} {...(!isActive && { c: 'dimmed' })}>
                  {scope}
                </Text>
                {extra.includes(scope) && (
                  <Badge color="gray" flex="none">
                    also granted
                  </Badge>
                )}
              </Group>
            );
          })}
        </Stack>
      )}
    </Card>
  );
}
