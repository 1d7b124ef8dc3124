import { Accordion, Alert, Button, Group, Modal, Stack, Switch, TextInput } from '@mantine/core';
import { IconFlask } from '@tabler/icons-react';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { ClientFields, ConfigFields, ScopesField } from './ClientFields.tsx';
import { type ClientValues, configOf, credentialsOf, takesClient, useClientForm } from './client-form.ts';
import { GoogleSteps } from './GoogleGuide.tsx';
import { createIntegration, createTestIntegration, isGoogle, type Provider } from './queries.ts';

/** Makes an integration of a provider: with test credentials at once, or with a client of one's own. */
export function CreateDialog({
  environment,
  provider,
  onClose,
}: {
  environment: string;
  provider: Provider;
  onClose: () => void;
}) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const form = useClientForm(provider);
  const canTest = provider.has_sandbox === true;
  const isTest = canTest && form.values.isTest;
  const create = useMutation({
    mutationFn: (values: ClientValues) => {
      const body = {
        provider: provider.name,
        unique_key: values.key.trim(),
        integration_config: configOf(values),
      };
      if (isTest) return createTestIntegration(environment, body);
      const hasClient = takesClient(provider) && values.client_id.trim() !== '';
      return createIntegration(environment, {
        ...body,
        ...(hasClient && { credentials: credentialsOf(values) }),
      });
    },
    onSuccess: async ({ unique_key }) => {
      await queries.invalidateQueries({ queryKey: [environment, 'integrations'] });
      await navigate({ to: '/$environment/integrations/of/$key', params: { environment, key: unique_key } });
    },
  });
  return (
    <Modal
      opened
      onClose={onClose}
      size={isTest ? 'md' : 'lg'}
      title={`Add ${provider.display_name}`}
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <form onSubmit={form.onSubmit((values) => create.mutate(values))}>
        <Stack>
          <TextInput
            label="Integration ID"
            description="What your application sends as Provider-Config-Key"
            required
            {...form.getInputProps('key')}
          />
          {canTest && (
            <Switch
              label="Test credentials"
              description="Against the built-in sandbox: nothing to set up at the provider, no real account"
              {...form.getInputProps('isTest', { type: 'checkbox' })}
            />
          )}
          {isTest ? (
            <Alert icon={<IconFlask size={18} />} color="violet">
              Works at once. You can put in credentials of your own later.
            </Alert>
          ) : (
            <>
              <ConfigFields form={form} provider={provider} />
              {takesClient(provider) && (
                <>
                  {isGoogle(provider.name) && (
                    <Accordion variant="contained" chevronPosition="left">
                      <Accordion.Item value="guide">
                        <Accordion.Control>How to get a client at Google, in six steps</Accordion.Control>
                        <Accordion.Panel>
                          <GoogleSteps provider={provider} />
                        </Accordion.Panel>
                      </Accordion.Item>
                    </Accordion>
                  )}
                  <ClientFields form={form} provider={provider} hasSecret={false} />
                  <ScopesField form={form} provider={provider} />
                </>
              )}
              {!takesClient(provider) && (
                <Alert variant="light">
                  {provider.display_name} needs no client of yours: each user brings a key of their own.
                </Alert>
              )}
            </>
          )}
          {create.isError && <FaultNotice error={create.error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button type="submit" loading={create.isPending}>
              Add
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
