import { Card, NumberInput, Stack, Switch, Text, TextInput, Title } from '@mantine/core';
import { useForm } from '@mantine/form';
import { notifications } from '@mantine/notifications';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { SaveBar } from '../../ui/SaveBar.tsx';
import { type Settings, settingsQuery } from '../settings/queries.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMay } from '../sign-in/queries.ts';
import { changeSettings } from './queries.ts';

/** The two addresses that official clients know, with what is sent there. */
export function AddressesTab() {
  const environment = useEnvironment();
  const query = useQuery(settingsQuery(environment));
  return (
    <Loaded query={query} loading={<LoadingRows rows={1} height={420} />}>
      {(settings) => <AddressesForm key={environment} environment={environment} settings={settings} />}
    </Loaded>
  );
}

const switches = [
  ['on_auth_creation', 'An account was connected, or could not be'],
  ['on_auth_refresh_error', 'A connection stopped working'],
  ['on_sync_completion_always', 'A sync ended'],
  ['on_sync_error', 'A sync failed'],
  ['on_async_action_completion', 'An action that ran in the background ended'],
] as const;

function AddressesForm({ environment, settings }: { environment: string; settings: Settings }) {
  const isAllowed = useMay()('environment:write');
  const queries = useQueryClient();
  const form = useForm({ initialValues: valuesOf(settings) });
  const save = useMutation({
    mutationFn: (values: ReturnType<typeof valuesOf>) => changeSettings(environment, values),
    onSuccess: (changed) => {
      queries.setQueryData(settingsQuery(environment).queryKey, changed);
      form.setInitialValues(valuesOf(changed));
      form.reset();
      notifications.show({ message: 'Saved.', color: 'green' });
    },
  });
  return (
    <Card>
      <form onSubmit={form.onSubmit((values) => save.mutate(values))}>
        <Stack>
          <Stack gap={2}>
            <Title order={2}>Addresses for official clients</Title>
            <Text size="sm" c="dimmed" maw={720}>
              For applications that were written for the official client: they get the bodies that it knows,
              signed in its headers. A new application rather adds an endpoint. A connection with a{' '}
              <code>webhook_url_override</code> has its own address in place of these.
            </Text>
          </Stack>
          <TextInput
            label="webhook_url"
            placeholder="https://app.example.com/webhooks"
            disabled={!isAllowed}
            {...form.getInputProps('webhook_url')}
          />
          <TextInput
            label="webhook_url_secondary"
            placeholder="none"
            disabled={!isAllowed}
            {...form.getInputProps('webhook_url_secondary')}
          />
          <Stack gap="sm">
            <Text size="sm" fw={500}>
              What is sent there
            </Text>
            {switches.map(([name, label]) => (
              <Switch
                key={name}
                label={label}
                description={name}
                disabled={!isAllowed}
                {...form.getInputProps(name, { type: 'checkbox' })}
              />
            ))}
          </Stack>
          <NumberInput
            label="Overlap of signing keys, in hours"
            description="How long the key before signs beside a new one, unless a rotation says otherwise"
            min={0}
            max={720}
            allowDecimal={false}
            maw={420}
            disabled={!isAllowed}
            {...form.getInputProps('webhook_signing_key_overlap_hours')}
          />
          {save.isError && <FaultNotice error={save.error} />}
          <SaveBar
            isDirty={form.isDirty()}
            isSaving={save.isPending}
            onUndo={form.reset}
            isAllowed={isAllowed}
            otherwise="Developers of this environment can change these."
          />
        </Stack>
      </form>
    </Card>
  );
}

function valuesOf(settings: Settings) {
  return {
    webhook_url: settings.webhook_url ?? '',
    webhook_url_secondary: settings.webhook_url_secondary ?? '',
    on_auth_creation: settings.on_auth_creation,
    on_auth_refresh_error: settings.on_auth_refresh_error,
    on_sync_completion_always: settings.on_sync_completion_always,
    on_sync_error: settings.on_sync_error,
    on_async_action_completion: settings.on_async_action_completion,
    webhook_signing_key_overlap_hours: settings.webhook_signing_key_overlap_hours,
  };
}
