import { Card, NumberInput, Stack, Switch, Text, TextInput, Title } from '@mantine/core';
import { useForm } from '@mantine/form';
import { notifications } from '@mantine/notifications';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useSearch } from '@tanstack/react-router';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { Page } from '../../ui/Page.tsx';
import { SaveBar } from '../../ui/SaveBar.tsx';
import { GuideLink } from '../links.tsx';
import { PageTabs } from '../PageTabs.tsx';
import { type Settings, settingsQuery } from '../settings/queries.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMay } from '../sign-in/queries.ts';
import { DeliveriesTab } from './DeliveriesTab.tsx';
import { EndpointsTab } from './EndpointsTab.tsx';
import { FeedTab } from './FeedTab.tsx';
import { PlainHttpNotice } from './PlainHttpNotice.tsx';
import { changeSettings } from './queries.ts';
import { SigningTab } from './SigningTab.tsx';

const tabs = [
  { name: 'endpoints', label: 'Endpoints', content: () => <EndpointsTab /> },
  { name: 'deliveries', label: 'Deliveries', content: () => <DeliveriesTab /> },
  { name: 'feed', label: 'Feed', content: () => <FeedTab /> },
  { name: 'signing', label: 'Signing key', content: () => <SigningTab /> },
  { name: 'addresses', label: 'Nango webhooks', content: () => <AddressesTab /> },
];

export function EventsPage() {
  const { tab } = useSearch({ from: '/$environment/events' });
  return (
    <Page
      title="Events"
      about={
        <>
          Changes of connections, integrations and records: read them as a feed, or receive them as signed
          requests. <GuideLink to="events" />
        </>
      }
    >
      <PageTabs tabs={tabs} open={tab} />
    </Page>
  );
}

/** The two Nango-compatible addresses, and the events that are sent to them. */
function AddressesTab() {
  const environment = useEnvironment();
  const query = useQuery(settingsQuery(environment));
  return (
    <Loaded query={query} loading={<LoadingRows rows={1} height={420} />}>
      {(settings) => <AddressesForm key={environment} settings={settings} />}
    </Loaded>
  );
}

const switches = [
  ['on_auth_creation', 'An account was connected, or the connection failed'],
  ['on_auth_refresh_error', 'A connection stopped working'],
  ['on_sync_completion_always', 'A sync ended'],
  ['on_sync_error', 'A sync failed'],
  ['on_async_action_completion', 'An action that ran in the background ended'],
] as const;

function AddressesForm({ settings }: { settings: Settings }) {
  const environment = useEnvironment();
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
            <Title order={2}>Nango-compatible webhooks</Title>
            <Dimmed maw={720}>
              For applications that use the official client: they receive the bodies and the signature headers
              of that client. A new application adds an endpoint instead. A connection with a{' '}
              <code>webhook_url_override</code> uses its own address instead.
            </Dimmed>
          </Stack>
          <TextInput
            label="webhook_url"
            placeholder="https://app.example.com/webhooks"
            disabled={!isAllowed}
            {...form.getInputProps('webhook_url')}
          />
          <PlainHttpNotice address={form.values.webhook_url} />
          <TextInput
            label="webhook_url_secondary"
            placeholder="none"
            disabled={!isAllowed}
            {...form.getInputProps('webhook_url_secondary')}
          />
          <PlainHttpNotice address={form.values.webhook_url_secondary} />
          <Stack gap="sm">
            <Text size="sm" fw={500}>
              Events to send
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
            description="How long the previous key also signs after a rotation, unless the rotation gives another time"
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
            otherwise="Only developers of this environment can change these."
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
