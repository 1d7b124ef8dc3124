import { Anchor, Group, PasswordInput, Stack, TagsInput, Text, TextInput } from '@mantine/core';
import { type UseFormReturnType, useForm } from '@mantine/form';
import { Fault } from '../../api/client.ts';
import { Copyable } from '../../ui/Copyable.tsx';
import { type Integration, isGoogle, type NewIntegration, type Provider } from './queries.ts';

/** The terms of RFC 6749, or those of OAuth 1.0 for a provider of this mode. */
export function clientTerms({ auth_mode }: Provider): { id: string; secret: string } {
  if (auth_mode === 'OAUTH1') return { id: 'Consumer key', secret: 'Consumer secret' };
  return { id: 'Client ID', secret: auth_mode === 'JWT' ? 'Private key' : 'Client secret' };
}

/** The application's OAuth client at a provider. `hasSecret`: a secret is stored, and is kept if none is entered. */
export function ClientFields({
  form,
  provider,
  hasSecret,
}: {
  form: ClientForm;
  provider: Provider;
  hasSecret: boolean;
}) {
  const isNeeded = provider.oauth_client === 'required';
  const terms = clientTerms(provider);
  return (
    <>
      {isNeeded && <RedirectUri provider={provider} />}
      <TextInput
        label={terms.id}
        required={isNeeded}
        autoComplete="off"
        {...form.getInputProps('client_id')}
      />
      <PasswordInput
        label={terms.secret}
        description={
          hasSecret
            ? 'A secret is stored, encrypted. Leave this field empty to keep it.'
            : 'Stored encrypted. Not shown again.'
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
      <Copyable value={provider.redirect_uri ?? ''} what="the redirect URI" />
      <Text size="xs" c="dimmed">
        Add exactly this URL{' '}
        {isGoogle(provider.name) ? 'in Google Cloud Console' : `at ${provider.display_name}`}.
      </Text>
    </Stack>
  );
}

/** Whether an authorization can request scopes: OAuth 1.0 has none, except at some providers. */
export function takesScopes({ auth_mode, default_scopes, available_scopes }: Provider): boolean {
  return auth_mode !== 'OAUTH1' || [...(default_scopes ?? []), ...(available_scopes ?? [])].length > 0;
}

/** The requested scopes, with a reset to the defaults of the provider. */
export function ScopesField({ form, provider }: { form: ClientForm; provider: Provider }) {
  if (!takesScopes(provider)) return null;
  const proposed = provider.default_scopes ?? [];
  const isProposed =
    form.values.scopes.length === proposed.length &&
    proposed.every((scope) => form.values.scopes.includes(scope));
  return (
    <TagsInput
      label="Scopes"
      description={
        <Group gap={6} component="span">
          <span>The scopes that users are asked to grant.</span>
          {!isProposed && (
            <Anchor
              component="button"
              type="button"
              size="xs"
              onClick={() => form.setFieldValue('scopes', proposed)}
            >
              Use the default scopes
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

/** The name by which users tell integrations of one provider apart. */
export function DisplayNameField({ form, provider }: { form: ClientForm; provider: Provider }) {
  return (
    <TextInput
      label="Display name"
      description="Your users see this name on the connect page"
      placeholder={provider.display_name}
      maxLength={255}
      {...form.getInputProps('name')}
    />
  );
}

/** Fields of this provider only, such as the host of a tenant. */
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

/** The values of the form of an integration. */
export type ClientValues = {
  key: string;
  /** Shown to users; empty: the name of the provider. */
  name: string;
  isTest: boolean;
  client_id: string;
  client_secret: string;
  scopes: string[];
  /** The provider's own fields. */
  config: Record<string, string>;
};
type ClientForm = UseFormReturnType<ClientValues>;

/** Whether the provider needs an OAuth client of the application; otherwise each user enters own credentials. */
export function takesClient({ oauth_client }: Provider): boolean {
  return oauth_client !== 'none';
}

/** Filled with the stored values, except the secret, which the service does not return. */
export function useClientForm(
  provider: Provider,
  { integration, taken = [] }: { integration?: Integration; taken?: readonly string[] },
): ClientForm {
  const storedId = integration?.client_id ?? '';
  return useForm<ClientValues>({
    initialValues: {
      key: integration?.integration_id ?? freeKey(provider.name, taken),
      name: integration?.display_name ?? '',
      isTest: integration?.test ?? provider.has_sandbox === true,
      client_id: storedId,
      client_secret: '',
      scopes: integration?.scopes ?? provider.default_scopes ?? [],
      config: Object.fromEntries(
        Object.keys(provider.integration_config ?? {}).map((name) => [
          name,
          integration?.integration_config[name] ?? '',
        ]),
      ),
    },
    validate: {
      key: (key) =>
        taken.includes(key.trim())
          ? 'An integration has this ID.'
          : /^[a-zA-Z0-9~:.@ _-]+$/.test(key)
            ? null
            : 'Use letters, digits, spaces and ~ : . @ _ -',
      // The issuer of an assertion has another form, such as an e-mail address.
      client_id: (id, { isTest }) =>
        isTest || id.trim() === '' || id.trim() === storedId || provider.auth_mode === 'JWT'
          ? null
          : faultOfClientId(provider.name, id.trim()),
      client_secret: (secret, { isTest, client_id }) =>
        takesClient(provider) &&
        !isTest &&
        client_id.trim() !== '' &&
        secret === '' &&
        client_id.trim() !== storedId
          ? 'Another client has another secret'
          : null,
      scopes: (scopes) =>
        (provider.default_scopes ?? []).length > 0 && scopes.length === 0 ? 'Choose at least one.' : null,
    },
  });
}

/** The credentials for the API; an empty secret keeps the stored one. */
export function credentialsOf(
  values: ClientValues,
  { auth_mode }: Pick<Provider, 'auth_mode'>,
): NonNullable<NewIntegration['credentials']> {
  const scopes = values.scopes.join(',');
  if (values.isTest) return { type: 'TEST', scopes };
  return {
    type: auth_mode === 'OAUTH1' ? 'OAUTH1' : 'OAUTH2',
    client_id: values.client_id.trim(),
    scopes,
    // The type requires a secret, as a new integration does; a change does not need one.
    ...(values.client_secret.trim() !== '' && { client_secret: values.client_secret.trim() }),
  } as NonNullable<NewIntegration['credentials']>;
}

/** The provider's own fields; an empty value deletes the stored one. */
export function configOf({ config }: ClientValues): Record<string, string> {
  return Object.fromEntries(Object.entries(config).map(([name, value]) => [name, value.trim()]));
}

/** The name of the provider, with a number if an integration has it as its ID. */
function freeKey(name: string, taken: readonly string[]): string {
  let key = name;
  for (let number = 2; taken.includes(key); number += 1) key = `${name}-${number}`;
  return key;
}

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Why a text cannot be a client ID of the provider; null if it may be one, or its form is not known. */
export function faultOfClientId(provider: string, id: string): string | null {
  if (isGoogle(provider) || provider === 'youtube')
    return /^[\w-]+\.apps\.googleusercontent\.com$/.test(id)
      ? null
      : 'A client ID of Google ends in .apps.googleusercontent.com.';
  if (/^(microsoft|onedrive|outlook)/.test(provider))
    return uuid.test(id) ? null : 'The application (client) ID of Microsoft is a UUID.';
  if (provider.startsWith('slack'))
    return /^\d+\.\d+$/.test(id) ? null : 'A client ID of Slack is two numbers with a dot between.';
  return null;
}

/** Fields of the form that have another name in the API. */
const renamed: Record<string, string> = { unique_key: 'key', integration_id: 'key', display_name: 'name' };

/** The errors of a response by the field of the form; empty if it has none for these fields. */
export function clientErrors(error: unknown): Record<string, string> {
  const fields = error instanceof Fault ? error.fields : [];
  return Object.fromEntries(
    fields.flatMap(({ path, message }) => {
      const [, name = path] = /^(?:credentials\.|integration_(?=config))(.*)$/.exec(path) ?? [];
      const field = renamed[path] ?? name;
      return /^(key|name|client_id|client_secret|scopes|config\..*)$/.test(field) ? [[field, message]] : [];
    }),
  );
}
