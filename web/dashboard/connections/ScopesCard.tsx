import { Badge, Card, Group, Stack, Text, Title } from '@mantine/core';
import { IconCheck, IconX } from '@tabler/icons-react';
import type { Connection } from './queries.ts';

/** What was asked for and what the user gave. */
export function ScopesCard({ scopes, missing }: { scopes: Connection['scopes']; missing: string[] }) {
  const extra = scopes?.granted.filter((scope) => !scopes.requested.includes(scope)) ?? [];
  return (
    <Card>
      <Title order={2} mb="xs">
        Scopes
      </Title>
      {scopes === null || scopes.requested.length + extra.length === 0 ? (
        <Text c="dimmed" size="sm">
          This kind of connection has none.
        </Text>
      ) : (
        <Stack gap={8}>
          {scopes.requested.map((scope) => {
            const isMissing = missing.includes(scope);
            return (
              <Group key={scope} gap="xs" wrap="nowrap" align="flex-start">
                {isMissing ? (
                  <IconX
                    size={18}
                    className="rigid"
                    color="var(--mantine-color-red-text)"
                    aria-label="not granted"
                  />
                ) : (
                  <IconCheck
                    size={18}
                    className="rigid"
                    color="var(--mantine-color-green-text)"
                    aria-label="granted"
                  />
                )}
                <Text size="sm" ff="monospace" className="wrap" miw={0}>
                  {scope}
                </Text>
              </Group>
            );
          })}
          {extra.map((scope) => (
            <Group key={scope} gap="xs" wrap="nowrap" align="flex-start">
              <IconCheck
                size={18}
                className="rigid"
                color="var(--mantine-color-green-text)"
                aria-label="granted"
              />
              <Text size="sm" ff="monospace" className="wrap" miw={0}>
                {scope}
              </Text>
              <Badge color="gray" flex="none">
                also given
              </Badge>
            </Group>
          ))}
        </Stack>
      )}
    </Card>
  );
}
