import { Badge, Code, Group, Stack, Text } from '@mantine/core';
import { Copyable } from '../../ui/Copyable.tsx';
import { CopyButton } from '../../ui/CopyButton.tsx';
import type { Provider } from './queries.ts';

const colors: Record<string, string> = { sensitive: 'orange', restricted: 'red' };
const meanings: Record<string, string> = {
  sensitive: 'Google verifies the application, about a week.',
  restricted: 'Google verifies it, and an assessor checks its security each year.',
};

/** The scopes of a provider with what Google makes of them, and those that this installation asks for to copy at once. */
export function GoogleScopes({ provider }: { provider: Provider }) {
  const { scopes = [], default_scopes: asked = [] } = provider;
  const classes = [...new Set(scopes.map(({ sensitivity }) => sensitivity))].filter((one) => one in meanings);
  return (
    <Stack gap={8}>
      <Group gap={4} justify="space-between">
        <span>Add the scopes that you ask for:</span>
        <CopyButton value={asked.map(fullName).join('\n')} what="all usual scopes" />
      </Group>
      {scopes.map(({ scope, sensitivity, description }) => (
        <Stack key={scope} gap={2}>
          <Group gap={6}>
            <Badge color={colors[sensitivity] ?? 'gray'}>{sensitivity.replaceAll('_', ' ')}</Badge>
            {asked.includes(scope) && <Badge>usual</Badge>}
          </Group>
          {asked.includes(scope) ? (
            <Copyable value={fullName(scope)} what={`the scope ${scope}`} />
          ) : (
            <Code className="wrap">{scope}</Code>
          )}
          <Text size="xs">{description}</Text>
        </Stack>
      ))}
      {classes.map((one) => (
        <Text key={one} size="sm">
          <b>{one.charAt(0).toUpperCase() + one.slice(1)}</b>: {meanings[one]}
        </Text>
      ))}
    </Stack>
  );
}

/** Google's console knows `email` and `profile` by their addresses alone. */
function fullName(scope: string): string {
  return scope === 'email' || scope === 'profile'
    ? `https://www.googleapis.com/auth/userinfo.${scope}`
    : scope;
}
