import { Anchor, Group, PasswordInput, Stack, TagsInput, Text, TextInput } from '@mantine/core';
import { Copyable } from '../../ui/Copyable.tsx';
import type { ClientForm } from './client-form.ts';
import { installationOf } from './installation.ts';
import { isGoogle, type Provider } from './queries.ts';

/** The application's own OAuth client at a provider. `hasSecret`: one is stored, and stays where none is typed. */
export function ClientFields({
  form,
  provider,
  hasSecret,
}: {
  form: ClientForm;
  provider: Provider;
  hasSecret: boolean;
}) {
  const isNeeded = provider.auth_mode === 'OAUTH2';
  return (
    <>
      {isNeeded && <RedirectUri provider={provider} />}
      <TextInput
        label="Client ID"
        required={isNeeded}
        autoComplete="off"
        {...form.getInputProps('client_id')}
      />
      <PasswordInput
        label="Client secret"
        description={
          hasSecret ? 'One is stored, sealed. Leave this empty to keep it.' : 'Kept sealed; never shown again'
        }
        placeholder={hasSecret ? '••••••••••••' : ''}
        required={isNeeded && !hasSecret}
        autoComplete="off"
        visibilityToggleButtonProps={{ 'aria-label': 'Show the secret', 'aria-hidden': false }}
        {...form.getInputProps('client_secret')}
      />
    </>
  );
}

export function RedirectUri({ provider }: { provider: Provider }) {
  return (
    <Stack gap={4}>
      <Text size="sm" fw={600}>
        Redirect URI
      </Text>
      <Copyable value={installationOf(provider.logo_url).redirectUri} what="the redirect URI" />
      <Text size="xs" c="dimmed">
        Register it at {isGoogle(provider.name) ? 'Google' : provider.display_name}, exactly so.
      </Text>
    </Stack>
  );
}

/** What users are asked for, with a way back to what the provider's entry proposes. */
export function ScopesField({ form, provider }: { form: ClientForm; provider: Provider }) {
  const proposed = provider.default_scopes ?? [];
  const isProposed =
    form.values.scopes.length === proposed.length &&
    proposed.every((scope) => form.values.scopes.includes(scope));
  return (
    <TagsInput
      label="Scopes"
      description={
        <Group gap={6} component="span">
          <span>What users are asked for.</span>
          {!isProposed && (
            <Anchor
              component="button"
              type="button"
              size="xs"
              onClick={() => form.setFieldValue('scopes', proposed)}
            >
              Take the usual ones
            </Anchor>
          )}
        </Group>
      }
      data={provider.available_scopes ?? []}
      splitChars={[',', ' ']}
      {...form.getInputProps('scopes')}
    />
  );
}

/** Fields that only this provider has, such as the host of a tenant. */
export function ConfigFields({ form, provider }: { form: ClientForm; provider: Provider }) {
  return Object.entries(provider.integration_config ?? {}).map(([name, field]) => (
    <TextInput
      key={name}
      label={field.title ?? name}
      description={field.description}
      placeholder={field.example}
      required={field.optional !== true}
      autoComplete="off"
      {...form.getInputProps(`config.${name}`)}
    />
  ));
}
