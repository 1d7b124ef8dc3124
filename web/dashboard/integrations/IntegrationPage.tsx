import {
  Alert,
  Badge,
  Button,
  Card,
  Code,
  Group,
  SimpleGrid,
  Skeleton,
  Stack,
  Switch,
  Text,
  Title,
} from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { notifications } from '@mantine/notifications';
import { type UseQueryResult, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { CauseAlert } from '../../ui/CauseAlert.tsx';
import { ChangedMeanwhile } from '../../ui/ChangedMeanwhile.tsx';
import { Confirm } from '../../ui/Confirm.tsx';
import { Copyable } from '../../ui/Copyable.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { Fact, Facts } from '../../ui/Facts.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { focusInvalid } from '../../ui/focus-invalid.ts';
import { IconFlask, IconPlugConnected } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { Logo } from '../../ui/Logo.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { upTo } from '../../ui/size.ts';
import { useUnsaved } from '../../ui/unsaved.ts';
import { CodeButton } from '../CodeButton.tsx';
import { postCall } from '../call-code.ts';
import { ConnectDialog } from '../connections/ConnectDialog.tsx';
import { ConnectionsTable } from '../connections/ConnectionsPage.tsx';
import { causeName } from '../connections/causes.ts';
import { NextCheck } from '../connections/NextCheck.tsx';
import { connectionsQuery } from '../connections/queries.ts';
import { FunctionsTable } from '../functions/FunctionsPage.tsx';
import { functionsQuery } from '../functions/queries.ts';
import { ProxiedCard } from '../home/ProxiedCard.tsx';
import { AnchorLink, BackLink } from '../links.tsx';
import { PageTabs } from '../PageTabs.tsx';
import { Snippets } from '../Snippets.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import {
  ClientFields,
  type ClientValues,
  ConfigFields,
  clientErrors,
  clientTerms,
  configOf,
  credentialsOf,
  DisplayNameField,
  RedirectUri,
  ScopesField,
  takesClient,
  takesScopes,
  useClientForm,
} from './ClientFields.tsx';
import { QuotaBar } from './QuotaBar.tsx';
import {
  changeIntegration,
  deleteIntegration,
  type Integration,
  integrationQuery,
  type Provider,
  providerQuery,
  tryClient,
  type Usage,
} from './queries.ts';
import { hasSetupGuide, SetupGuide } from './SetupGuide.tsx';
import { SunsetNotice } from './SunsetNotice.tsx';

export function IntegrationPage() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const { key } = useParams({ from: '/$environment/integrations/of/$key' });
  const { tab } = useSearch({ from: '/$environment/integrations/of/$key' });
  const [isOpen, { open, close }] = useDisclosure();
  const query = useQuery({ ...integrationQuery(environment, key), refetchInterval: 10_000 });
  const provider = useQuery({
    ...providerQuery(environment, query.data?.provider ?? ''),
    enabled: query.data !== undefined,
  });
  const { data: integration } = query;
  return (
    <Page
      title={integration?.display_name ?? key}
      before={
        <BackLink to="/$environment/integrations" params={{ environment }}>
          Integrations
        </BackLink>
      }
      about={
        integration ? (
          <Group gap="xs" mt={4}>
            <Logo src={integration.logo} name={integration.display_name} size={24} />
            <Badge color="gray">{integration.integration_id}</Badge>
            {integration.test && <Badge color="violet">test credentials</Badge>}
          </Group>
        ) : (
          query.isPending && <Skeleton h={22} w={220} mt={6} />
        )
      }
      actions={
        integration && (
          <>
            <CodeButton>
              <Snippets
                title="Create a connect link for a user"
                scopes={['connections:write']}
                call={postCall('/connect/sessions', {
                  end_user: { id: 'user-1' },
                  allowed_integrations: [key],
                })}
              />
            </CodeButton>
            {mayWrite && (
              <Button leftSection={<IconPlugConnected size={16} />} onClick={open}>
                Connect an account
              </Button>
            )}
          </>
        )
      }
    >
      <Loaded query={query} loading={<LoadingRows rows={2} height={260} />}>
        {(loaded) => (
          <Stack gap="lg">
            {loaded.fault && (
              <CauseAlert
                color="red"
                title={causeName(loaded.fault.cause)}
                at={loaded.fault.since}
                nextStep={loaded.fault.next_step}
                evidence={loaded.fault.evidence}
              >
                {loaded.fault.next_check_at !== null && (
                  <NextCheck
                    at={loaded.fault.next_check_at}
                    check={() => tryClient(environment, key)}
                    stale={[[environment, 'integrations']]}
                  />
                )}
              </CauseAlert>
            )}
            {loaded.usage && <SunsetNotice integration={key} sunsets={loaded.usage.sunsets} />}
            {loaded.usage && loaded.usage.connections.total > 0 ? (
              <PageTabs
                open={tab}
                tabs={[
                  {
                    name: 'overview',
                    label: 'Overview',
                    content: () => <Overview integration={loaded} usage={loaded.usage!} />,
                  },
                  {
                    name: 'settings',
                    label: 'Settings',
                    content: () => <SettingsTab integration={loaded} provider={provider} />,
                  },
                ]}
              />
            ) : (
              <SettingsTab integration={loaded} provider={provider} />
            )}
          </Stack>
        )}
      </Loaded>
      <ConnectDialog integration={key} isOpen={isOpen} onClose={close} />
    </Page>
  );
}

type CredentialsProps = { integration: Integration; provider: Provider };

/** The client of the integration: of the sandbox, or an own one. */
function CredentialsCard({ mayWrite, ...given }: CredentialsProps & { mayWrite: boolean }) {
  const hasFields = Object.keys(given.provider.integration_config ?? {}).length > 0;
  if (!takesClient(given.provider) && !(hasFields && mayWrite)) {
    return (
      <Card>
        <Title order={2} mb="xs">
          Credentials
        </Title>
        <Dimmed>
          {given.provider.display_name} does not need an OAuth client: each user enters their own credentials.
        </Dimmed>
      </Card>
    );
  }
  return mayWrite ? <Editor {...given} /> : <Shown {...given} />;
}

/** The form of an integration. A change by another user replaces a form without input, and is reported in one with input. */
function Editor({ integration, provider }: CredentialsProps) {
  const [shown, setShown] = useState(integration);
  return (
    <EditorForm
      key={shown.updated_at}
      integration={shown}
      provider={provider}
      newest={integration}
      onShow={setShown}
    />
  );
}

function EditorForm({
  integration,
  provider,
  newest,
  onShow,
}: CredentialsProps & { newest: Integration; onShow: (next: Integration) => void }) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const form = useClientForm(provider, { integration });
  const save = useMutation({
    mutationFn: (values: ClientValues) =>
      changeIntegration(environment, {
        key: integration.integration_id,
        change: {
          integration_config: configOf(values),
          ...(values.name.trim() !== '' && { display_name: values.name.trim() }),
          ...((values.isTest || values.client_id.trim() !== '') && {
            credentials: credentialsOf(values, provider),
          }),
        },
      }),
    onError: (error) => {
      form.setErrors(clientErrors(error));
      focusInvalid();
    },
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: [environment, 'integrations'] });
      notifications.show({ message: 'Saved. The secret is stored encrypted.', color: 'green' });
      onShow(await queries.ensureQueryData(integrationQuery(environment, integration.integration_id)));
    },
  });
  const isChanged = newest.updated_at !== integration.updated_at && !save.isPending;
  const isUntouched = !form.isDirty();
  useUnsaved(!isUntouched);
  useEffect(() => {
    if (isChanged && isUntouched) onShow(newest);
  }, [isChanged, isUntouched, newest, onShow]);
  const { isTest } = form.values;
  const connections = newest.usage?.connections.total ?? 0;
  return (
    <Card>
      <form onSubmit={form.onSubmit((values) => save.mutate(values), focusInvalid)}>
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
            <Dimmed>
              You cannot change this while the integration has connections, because their tokens belong to the
              current provider. Create a second integration instead.
            </Dimmed>
          )}
          <DisplayNameField form={form} provider={provider} />
          {isTest ? (
            <Alert color="violet" icon={<IconFlask size={18} />} title="This integration uses the sandbox">
              No real account is used. {connections === 0 && 'Turn this off to enter your own client.'}
            </Alert>
          ) : (
            takesClient(provider) && (
              <ClientFields form={form} provider={provider} hasSecret={integration.client_id !== null} />
            )
          )}
          {!isTest && <ConfigFields form={form} provider={provider} />}
          {takesClient(provider) && <ScopesField form={form} provider={provider} />}
          {save.isError && Object.keys(clientErrors(save.error)).length === 0 && (
            <FaultNotice error={save.error} />
          )}
          {isChanged && !isUntouched && (
            <ChangedMeanwhile subject="integration" onDiscard={() => onShow(newest)} />
          )}
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

/** For read-only roles. */
function Shown({ integration, provider }: CredentialsProps) {
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
                {clientTerms(provider).id}
              </Text>
              {integration.client_id === null ? (
                <Dimmed>none</Dimmed>
              ) : (
                <Copyable value={integration.client_id} what="the client ID" />
              )}
            </Stack>
          </>
        )}
        {takesScopes(provider) && (
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
        )}
        <Dimmed>Your role is read-only. A developer of this environment can change this.</Dimmed>
      </Stack>
    </Card>
  );
}

/** The credentials and, before the first connection, the steps of the set-up at the provider. */
function SettingsTab({
  integration,
  provider,
}: {
  integration: Integration;
  provider: UseQueryResult<Provider>;
}) {
  const mayWrite = useMayWrite();
  const total = integration.usage?.connections.total ?? 0;
  const needsGuide = (of: Provider) => total === 0 && !integration.test && hasSetupGuide(of);
  return (
    <Stack gap="lg">
      <Loaded query={provider} loading={<LoadingRows rows={2} height={180} />}>
        {(of) => (
          <SimpleGrid cols={{ base: 1, lg: needsGuide(of) ? 2 : 1 }} spacing="lg">
            <Stack gap="lg">
              <CredentialsCard integration={integration} provider={of} mayWrite={mayWrite} />
              {mayWrite && <DeleteIntegration integration={integration} connections={total} />}
            </Stack>
            {needsGuide(of) && <SetupGuide provider={of} />}
          </SimpleGrid>
        )}
      </Loaded>
    </Stack>
  );
}

/** The size of the lists, which have a link to the whole list. */
const maxShown = 10;

/** Usage, error rate, functions and connections, with the key facts beside them. */
function Overview({ integration, usage }: { integration: Integration; usage: Usage }) {
  const environment = useEnvironment();
  const { integration_id: key } = integration;
  const of = { integration_id: key, limit: maxShown };
  const functions = useQuery(functionsQuery(environment, of));
  const connections = useQuery(connectionsQuery(environment, of));
  const params = { environment };
  const search = { integration: key };
  return (
    <Stack gap="lg">
      <About integration={integration} />
      {usage.quota.length > 0 && (
        <Card>
          <Stack gap="sm">
            <Title order={2}>Quota of the client</Title>
            {usage.quota.map((quota) => (
              <QuotaBar key={quota.name} quota={quota} />
            ))}
          </Stack>
        </Card>
      )}
      <ProxiedCard title="Calls, 24 hours" span="24 hours" integration={key} />
      <Stack gap="xs" component="section" aria-label="Functions">
        <Group justify="space-between">
          <Title order={2}>Functions</Title>
          <AnchorLink size="sm" to="/$environment/functions" params={params} search={search}>
            View all
          </AnchorLink>
        </Group>
        {functions.isError ? (
          <Dimmed>{functions.error.message}</Dimmed>
        ) : (
          <Loaded query={functions} loading={<LoadingRows rows={2} />}>
            {({ data }) =>
              data.length === 0 ? (
                <Dimmed>No function is deployed for this integration.</Dimmed>
              ) : (
                <FunctionsTable functions={data} isOfIntegration />
              )
            }
          </Loaded>
        )}
      </Stack>
      <Stack gap="xs" component="section" aria-label="Connections">
        <Group justify="space-between">
          <Group>
            <Title order={2}>Connections</Title>
            <Dimmed>{sharesOf(usage.connections)}</Dimmed>
          </Group>
          <AnchorLink size="sm" to="/$environment/connections" params={params} search={search}>
            View all {upTo(usage.connections.total)}
          </AnchorLink>
        </Group>
        <Loaded query={connections} loading={<LoadingRows rows={3} />}>
          {(page) => <ConnectionsTable connections={page.connections} isOfIntegration />}
        </Loaded>
      </Stack>
    </Stack>
  );
}

function About({ integration }: { integration: Integration }) {
  return (
    <Card>
      <Title order={2} mb="xs">
        About
      </Title>
      <Facts>
        <Fact name="Provider">{integration.provider}</Fact>
        <Fact name="Integration ID">
          <Copyable value={integration.integration_id} what="the integration ID" />
        </Fact>
        {integration.client_id !== null && !integration.test && (
          <Fact name="Client ID">
            <Copyable value={integration.client_id} what="the client ID" />
          </Fact>
        )}
        <Fact name="Created">
          <RelativeTime at={integration.created_at} />
        </Fact>
        <Fact name="Changed">
          <RelativeTime at={integration.updated_at} />
        </Fact>
        <Fact name="Scopes">
          {integration.scopes.length === 0
            ? 'none'
            : integration.scopes.map((scope) => <div key={scope}>{scope}</div>)}
        </Fact>
      </Facts>
    </Card>
  );
}

/** "3 active · 1 blocked". */
function sharesOf({ active, needs_reauth, blocked }: Usage['connections']): string {
  const shares = [
    { name: 'active', count: active },
    { name: 'reconnect needed', count: needs_reauth },
    { name: 'blocked', count: blocked },
  ].filter(({ count }) => count > 0);
  return shares.map(({ name, count }) => `${count.toLocaleString()} ${name}`).join(' · ');
}

/** Deletion with a confirmation; the service rejects it while there are connections. */
function DeleteIntegration({ integration, connections }: { integration: Integration; connections: number }) {
  const { integration_id: id, client_id } = integration;
  const effect = `It has no connections.${client_id === null ? '' : ' This also deletes its client ID and secret.'}`;
  const environment = useEnvironment();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [asked, setAsked] = useState<string>();
  const destroy = useMutation({
    mutationFn: (key: string) => deleteIntegration(environment, key),
    onMutate: () => location.pathname,
    onSuccess: async (_answer, _given, from) => {
      const isOpen = location.pathname === from;
      // The queries of this page would not find the integration; those of the next page are fetched when it opens.
      await queries.invalidateQueries({
        queryKey: [environment],
        refetchType: isOpen ? 'none' : 'active',
      });
      if (isOpen) await navigate({ to: '/$environment/integrations', params: { environment } });
    },
  });
  return (
    <Card>
      <Group justify="space-between">
        <Stack gap={2} flex="1 1 260px">
          <Title order={2}>Delete this integration</Title>
          <Dimmed>{connections === 0 ? effect : 'Delete its connections first.'}</Dimmed>
        </Stack>
        <Button color="red" variant="light" onClick={() => setAsked(id)} disabled={connections > 0}>
          Delete
        </Button>
      </Group>
      <Confirm
        title={`Delete ${id}?`}
        act="Delete permanently"
        given={asked}
        mutation={destroy}
        onClose={() => setAsked(undefined)}
      >
        <Text size="sm">{effect}</Text>
      </Confirm>
    </Card>
  );
}
