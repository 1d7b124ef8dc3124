import { type UseFormReturnType, useForm } from '@mantine/form';
import type { Integration, NewIntegration, Provider } from './queries.ts';

/** What a person fills in to make the service a client of a provider. */
export type ClientValues = {
  key: string;
  isTest: boolean;
  client_id: string;
  client_secret: string;
  scopes: string[];
  /** The provider's own fields. */
  config: Record<string, string>;
};
export type ClientForm = UseFormReturnType<ClientValues>;

/** Whether users can agree only to a client of the application; else each brings a key of their own. */
export function takesClient({ auth_mode }: Provider): boolean {
  return /^OAUTH2/.test(auth_mode);
}

/** Filled with what is stored, but for the secret, which the service does not show. */
export function useClientForm(provider: Provider, integration?: Integration): ClientForm {
  const storedId = integration?.client_id ?? '';
  return useForm<ClientValues>({
    initialValues: {
      key: integration?.unique_key ?? provider.name,
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
      client_secret: (secret, { isTest, client_id }) =>
        takesClient(provider) &&
        !isTest &&
        client_id.trim() !== '' &&
        secret === '' &&
        client_id.trim() !== storedId
          ? 'Another client has another secret'
          : null,
      scopes: (scopes) =>
        (provider.default_scopes ?? []).length > 0 && scopes.length === 0 ? 'At least one' : null,
    },
  });
}

/** As the interface takes them; the stored secret stays where none was typed. */
export function credentialsOf(values: ClientValues): NonNullable<NewIntegration['credentials']> {
  const scopes = values.scopes.join(',');
  if (values.isTest) return { type: 'TEST', scopes };
  return {
    type: 'OAUTH2',
    client_id: values.client_id.trim(),
    scopes,
    // The type is that of a new integration, which needs one; a change does not.
    ...(values.client_secret.trim() !== '' && { client_secret: values.client_secret.trim() }),
  } as NonNullable<NewIntegration['credentials']>;
}

/** The provider's own fields; the service takes an empty one for none, and forgets what it had. */
export function configOf({ config }: ClientValues): Record<string, string> {
  return Object.fromEntries(Object.entries(config).map(([name, value]) => [name, value.trim()]));
}
