import {
  Alert,
  Button,
  Card,
  Group,
  PasswordInput,
  Stack,
  Switch,
  TagsInput,
  Text,
  TextInput,
  Title,
} from '@mantine/core';
import { useForm } from '@mantine/form';
import { notifications } from '@mantine/notifications';
import { IconFlask } from '@tabler/icons-react';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { Copyable } from '../../ui/Copyable.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { changeIntegration, type Integration, type IntegrationChange, type Provider } from './queries.ts';

/** As which client the service speaks to the provider: the sandbox's, by one switch, or one's own. */
export function CredentialsCard({
  environment,
  integration,
  provider,
  mayWrite,
}: {
  environment: string;
  integration: Integration;
  provider: Provider;
  mayWrite: boolean;
}) {
  const queries = useQueryClient();
  const form = useForm({
    initialValues: {
      isTest: integration.test,
      client_id: '',
      client_secret: '',
      scopes: provider.default_scopes ?? [],
    },
  });
  const save = useMutation({
    mutationFn: (change: IntegrationChange) =>
      changeIntegration(environment, { key: integration.unique_key, change }),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: [environment, 'integrations'] });
      notifications.show({ message: 'The credentials are kept, sealed.', color: 'green' });
    },
  });
  if (!/^OAUTH2/.test(provider.auth_mode)) {
    return (
      <Card>
        <Title order={2} mb="xs">
          Credentials
        </Title>
        <Text size="sm" c="dimmed">
          {provider.display_name} needs no client of yours: each user brings a key of their own.
        </Text>
      </Card>
    );
  }
  const { isTest, client_id, client_secret, scopes } = form.values;
  const submit = () =>
    save.mutate({
      credentials: isTest
        ? { type: 'TEST' }
        : {
            type: 'OAUTH2',
            client_id: client_id.trim(),
            client_secret: client_secret.trim(),
            scopes: scopes.join(','),
          },
    });
  return (
    <Card>
      <form onSubmit={form.onSubmit(submit)}>
        <Stack>
          <Group justify="space-between">
            <Title order={2}>Credentials</Title>
            {provider.has_sandbox === true && (
              <Switch
                label="Test credentials"
                labelPosition="left"
                disabled={!mayWrite}
                {...form.getInputProps('isTest', { type: 'checkbox' })}
              />
            )}
          </Group>
          {isTest ? (
            <Alert
              color="violet"
              icon={<IconFlask size={18} />}
              title="This integration speaks to the sandbox"
            >
              No real account is touched. Turn the switch off to put in a client of your own.
            </Alert>
          ) : (
            <>
              <Stack gap={4}>
                <Text size="sm" fw={500}>
                  Redirect URI
                </Text>
                <Copyable value={redirectUri()} what="the redirect URI" />
                <Text size="xs" c="dimmed">
                  Register it at {provider.display_name}, exactly so.
                </Text>
              </Stack>
              <TextInput
                label="Client ID"
                required
                autoComplete="off"
                disabled={!mayWrite}
                {...form.getInputProps('client_id')}
              />
              <PasswordInput
                label="Client secret"
                description="Kept sealed; this page never shows it again"
                required
                autoComplete="off"
                disabled={!mayWrite}
                visibilityToggleButtonProps={{ 'aria-label': 'Show the secret', 'aria-hidden': false }}
                {...form.getInputProps('client_secret')}
              />
              <TagsInput
                label="Scopes"
                description="What users are asked for"
                data={provider.available_scopes ?? []}
                disabled={!mayWrite}
                {...form.getInputProps('scopes')}
              />
            </>
          )}
          {save.isError && <FaultNotice error={save.error} />}
          {mayWrite && (!isTest || !integration.test) && (
            <Group justify="flex-end">
              <Button type="submit" loading={save.isPending}>
                Save
              </Button>
            </Group>
          )}
        </Stack>
      </form>
    </Card>
  );
}

/** Where the provider sends users back to. */
export function redirectUri(): string {
  return `${location.origin}/oauth/callback`;
}
