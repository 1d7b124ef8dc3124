import { Alert, Badge, Button, Card, Code, Group, Stack, Switch, Text, Title } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { IconFlask } from '@tabler/icons-react';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { Copyable } from '../../ui/Copyable.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { ClientFields, ConfigFields, RedirectUri, ScopesField } from './ClientFields.tsx';
import { type ClientValues, configOf, credentialsOf, takesClient, useClientForm } from './client-form.ts';
import { changeIntegration, type Integration, type Provider } from './queries.ts';

type Given = { environment: string; integration: Integration; provider: Provider };

/** As which client the service speaks to the provider: the sandbox's, by one switch, or one's own. */
export function CredentialsCard({ mayWrite, ...given }: Given & { mayWrite: boolean }) {
  const hasFields = Object.keys(given.provider.integration_config ?? {}).length > 0;
  if (!takesClient(given.provider) && !(hasFields && mayWrite)) {
    return (
      <Card>
        <Title order={2} mb="xs">
          Credentials
        </Title>
        <Text size="sm" c="dimmed">
          {given.provider.display_name} needs no client of yours: each user brings a key of their own.
        </Text>
      </Card>
    );
  }
  return mayWrite ? <Editor {...given} /> : <Shown {...given} />;
}

function Editor({ environment, integration, provider }: Given) {
  const queries = useQueryClient();
  const form = useClientForm(provider, integration);
  const save = useMutation({
    mutationFn: (values: ClientValues) =>
      changeIntegration(environment, {
        key: integration.unique_key,
        change: {
          integration_config: configOf(values),
          ...((values.isTest || values.client_id.trim() !== '') && { credentials: credentialsOf(values) }),
        },
      }),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: [environment, 'integrations'] });
      notifications.show({ message: 'Saved. The secret is kept sealed.', color: 'green' });
    },
  });
  const { isTest } = form.values;
  const connections = integration.usage?.connections.total ?? 0;
  return (
    <Card>
      <form onSubmit={form.onSubmit((values) => save.mutate(values))}>
        <Stack>
          <Group justify="space-between">
            <Title order={2}>Credentials</Title>
            {provider.has_sandbox === true && (
              <Switch
                label="Test credentials"
                labelPosition="left"
                disabled={connections > 0}
                {...form.getInputProps('isTest', { type: 'checkbox' })}
              />
            )}
          </Group>
          {provider.has_sandbox === true && connections > 0 && (
            <Text size="sm" c="dimmed">
              The switch is fixed while there are connections: their tokens must not reach another provider
              than the one that gave them. Make a second integration beside this one instead.
            </Text>
          )}
          {isTest ? (
            <Alert
              color="violet"
              icon={<IconFlask size={18} />}
              title="This integration speaks to the sandbox"
            >
              No real account is touched.{' '}
              {connections === 0 && 'Turn the switch off to put in a client of your own.'}
            </Alert>
          ) : (
            takesClient(provider) && (
              <ClientFields form={form} provider={provider} hasSecret={integration.client_id !== null} />
            )
          )}
          {!isTest && <ConfigFields form={form} provider={provider} />}
          {takesClient(provider) && <ScopesField form={form} provider={provider} />}
          {save.isError && <FaultNotice error={save.error} />}
          <Group justify="flex-end">
            <Button type="submit" loading={save.isPending} disabled={!form.isDirty()}>
              Save
            </Button>
          </Group>
        </Stack>
      </form>
    </Card>
  );
}

/** For who may look alone. */
function Shown({ integration, provider }: Given) {
  return (
    <Card>
      <Stack>
        <Group justify="space-between">
          <Title order={2}>Credentials</Title>
          {integration.test && <Badge color="violet">test credentials</Badge>}
        </Group>
        {!integration.test && (
          <>
            <RedirectUri provider={provider} />
            <Stack gap={4}>
              <Text size="sm" fw={600}>
                Client ID
              </Text>
              {integration.client_id === null ? (
                <Text size="sm" c="dimmed">
                  none
                </Text>
              ) : (
                <Copyable value={integration.client_id} what="the client ID" />
              )}
            </Stack>
          </>
        )}
        <Stack gap={4}>
          <Text size="sm" fw={600}>
            Scopes
          </Text>
          <Group gap={6}>
            {integration.scopes.map((scope) => (
              <Code key={scope} className="wrap">
                {scope}
              </Code>
            ))}
          </Group>
        </Stack>
        <Text size="sm" c="dimmed">
          Your role here is to look: a developer of this environment can change them.
        </Text>
      </Stack>
    </Card>
  );
}
