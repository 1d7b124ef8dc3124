import { Alert, Button, Group, Modal, Stack, Switch, Text, TextInput } from '@mantine/core';
import { useForm } from '@mantine/form';
import { IconFlask } from '@tabler/icons-react';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { createIntegration, createTestIntegration, type Provider } from './queries.ts';

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
  const canTest = provider.has_sandbox === true;
  const needsClient = /^OAUTH2/.test(provider.auth_mode);
  const form = useForm({ initialValues: { key: provider.name, isTest: canTest } });
  const create = useMutation({
    mutationFn: ({ key, isTest }: { key: string; isTest: boolean }) => {
      const body = { provider: provider.name, unique_key: key };
      return isTest ? createTestIntegration(environment, body) : createIntegration(environment, body);
    },
    onSuccess: async ({ unique_key }) => {
      await queries.invalidateQueries({ queryKey: [environment, 'integrations'] });
      await navigate({
        to: '/$environment/integrations/of/$key',
        params: { environment, key: unique_key },
      });
    },
  });
  return (
    <Modal
      opened
      onClose={onClose}
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
          {form.values.isTest ? (
            <Alert icon={<IconFlask size={18} />} color="violet">
              Works at once. You can put in credentials of your own later.
            </Alert>
          ) : (
            needsClient && (
              <Text size="sm" c="dimmed">
                The next page asks for the client ID and secret of your application at {provider.display_name}
                .
              </Text>
            )
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
