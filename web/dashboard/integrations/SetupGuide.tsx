import { Anchor, Card, Stack, Text, Title } from '@mantine/core';
import type { ReactNode } from 'react';
import { Copyable } from '../../ui/Copyable.tsx';
import { Steps } from '../../ui/Steps.tsx';
import { GoogleSteps } from './GoogleGuide.tsx';
import { isGoogle, type Provider } from './queries.ts';

export function hasSetupGuide({ name, setup, redirect_uri }: Provider): boolean {
  return setup !== undefined || (isGoogle(name) && redirect_uri !== undefined);
}

/** Where the guide's client is created, for a sentence. */
export function consoleOf({ name, display_name }: Provider): string {
  return isGoogle(name) ? 'Google' : display_name;
}

/** How to create an OAuth client at the provider for this installation. */
export function SetupGuide({ provider }: { provider: Provider }) {
  return (
    <Card>
      <Title order={2} mb="md">
        Set-up at {consoleOf(provider)}
      </Title>
      <SetupSteps provider={provider} />
    </Card>
  );
}

export function SetupSteps({ provider }: { provider: Provider }) {
  const { name, display_name, setup, redirect_uri = '' } = provider;
  if (isGoogle(name)) return <GoogleSteps provider={provider} />;
  if (setup === undefined) return null;
  return (
    <Stack gap="md">
      {setup.url !== undefined && (
        <Text size="sm">
          Begin at{' '}
          <Anchor href={setup.url} target="_blank" rel="noopener noreferrer" underline="always" inherit>
            {new URL(setup.url).host}
          </Anchor>
          . {display_name} may change the names of pages and buttons.
        </Text>
      )}
      <Steps steps={setup.steps.map((step) => ({ body: withAddress(step, redirect_uri) }))} />
    </Stack>
  );
}

/** The text of a step, and below it the address that it ends with. */
function withAddress(step: string, address: string): ReactNode {
  if (address === '' || !step.includes(address)) return step;
  return (
    <Stack gap={6}>
      {step.replace(address, '').trim()}
      <Copyable value={address} what="the redirect URI" />
    </Stack>
  );
}
