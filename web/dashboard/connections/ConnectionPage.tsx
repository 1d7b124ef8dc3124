import { Badge, Button, Card, Group, Skeleton, Stack, Title } from '@mantine/core';
import { useIsMutating, useQuery } from '@tanstack/react-query';
import { useParams, useSearch } from '@tanstack/react-router';
import { CauseAlert } from '../../ui/CauseAlert.tsx';
import { Copyable } from '../../ui/Copyable.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { Fact, Facts } from '../../ui/Facts.tsx';
import { IconRefresh, IconTerminal2 } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { useFocusIfLost } from '../../ui/use-focus-if-lost.ts';
import { sentence } from '../../ui/words.ts';
import { OperationsTable } from '../activity/OperationsTable.tsx';
import { operationsQuery } from '../activity/queries.ts';
import { CodeButton } from '../CodeButton.tsx';
import { SyncsCard } from '../functions/SyncsTable.tsx';
import { withoutRefresh } from '../integrations/auth-labels.ts';
import { type Provider, providerQuery } from '../integrations/queries.ts';
import { AnchorLink, BackLink, ButtonLink, GuideLink, integrationPage } from '../links.tsx';
import { LoadingTabs, PageTabs } from '../PageTabs.tsx';
import { suggestionsQuery } from '../playground/queries.ts';
import { emptyForm, formOf } from '../playground/request.ts';
import { callOf } from '../playground/snippets.ts';
import { DatasetsTab } from '../records/DatasetsTab.tsx';
import { CredentialsSnippets, Snippets } from '../Snippets.tsx';
import { SheetsCard } from '../sheets/SheetsCard.tsx';
import { sheetProvider } from '../sheets/settings.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { useChange } from '../use-change.ts';
import { AuthorizationTab } from './AuthorizationTab.tsx';
import { ReconnectButton } from './ConnectDialog.tsx';
import { causeName } from './causes.ts';
import { accountName, endUserText } from './EndUser.tsx';
import { HealthBadge } from './HealthBadge.tsx';
import { NextCheck } from './NextCheck.tsx';
import {
  type At,
  connectionQuery,
  deletionKey,
  type Health,
  refresh,
  type WholeConnection,
} from './queries.ts';
import { SettingsTab } from './SettingsTab.tsx';
import { Timeline } from './Timeline.tsx';

export function ConnectionPage() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const at: At = useParams({ from: '/$environment/connections/$integration/$id' });
  const { tab } = useSearch({ from: '/$environment/connections/$integration/$id' });
  const isBeingDeleted = useIsMutating({ mutationKey: deletionKey(environment, at) }) > 0;
  const query = useQuery({
    ...connectionQuery(environment, at),
    refetchInterval: isBeingDeleted ? false : 5_000,
  });
  const { data: connection } = query;
  const { data: provider } = useQuery({
    ...providerQuery(environment, connection?.provider ?? ''),
    enabled: connection !== undefined,
  });
  const isRefreshed = provider !== undefined && !withoutRefresh.includes(provider.auth_mode);
  const body = useFocusIfLost<HTMLDivElement>(connection?.health.state);
  return (
    <Page
      title={connection === undefined ? at.id : accountName(connection)}
      before={
        <BackLink to="/$environment/connections" params={{ environment }} search={{}}>
          Connections
        </BackLink>
      }
      about={
        connection ? (
          <>
            <Group gap="xs" mt={4}>
              <HealthBadge health={connection.health} />
              <Badge color="gray">{connection.integration_id}</Badge>
              {connection.test && <Badge color="violet">test credentials</Badge>}
            </Group>
            {connection.health.state === 'unverified' && provider !== undefined && (
              <Dimmed mt={6}>
                The credentials are not verified. Nothing has proven them yet, or the provider refused them in
                a call:{' '}
                {provider.proxy === undefined
                  ? `${provider.display_name} has no HTTP API, so Trellis cannot verify them.`
                  : `${isRefreshed ? 'a refresh, or ' : ''}a proxied call with a successful response makes the connection healthy.`}{' '}
                <GuideLink to="health" />
              </Dimmed>
            )}
          </>
        ) : (
          query.isPending && <Skeleton h={22} w={220} mt={6} />
        )
      }
      actions={
        connection && (
          <>
            {mayWrite && provider?.proxy !== undefined && (
              <ButtonLink
                variant="default"
                leftSection={<IconTerminal2 size={16} />}
                to="/$environment/playground"
                params={{ environment }}
                search={{ integration: at.integration, connection: at.id }}
              >
                Try a call
              </ButtonLink>
            )}
            <CodeButton>{provider !== undefined && <CallSnippets at={at} provider={provider} />}</CodeButton>
            {mayWrite && isRefreshed && !isFaulty(connection.health) && <RefreshButton at={at} />}
            {mayWrite && <ReconnectButton at={at} connection={connection} />}
          </>
        )
      }
    >
      <Loaded query={query} loading={<LoadingTabs />}>
        {(loaded) => (
          <Stack gap="lg" ref={body} tabIndex={-1} className="unmarked">
            <HealthAlerts at={at} connection={loaded} />
            <PageTabs
              open={tab}
              tabs={[
                {
                  name: 'overview',
                  label: 'Overview',
                  content: () => (
                    <Stack gap="lg">
                      <KeyFacts connection={loaded} />
                      <Timeline at={at} connection={loaded} />
                    </Stack>
                  ),
                },
                {
                  name: 'authorization',
                  label: 'Authorization',
                  content: () => <AuthorizationTab connection={loaded} />,
                },
                {
                  name: 'syncs',
                  label: 'Syncs',
                  content: () => (
                    <Stack gap="lg">
                      {loaded.provider === sheetProvider && <SheetsCard at={at} metadata={loaded.metadata} />}
                      <SyncsCard at={at} />
                    </Stack>
                  ),
                },
                { name: 'records', label: 'Records', content: () => <DatasetsTab at={at} /> },
                { name: 'activity', label: 'Activity', content: () => <ActivityTab at={at} /> },
                {
                  name: 'settings',
                  label: 'Settings',
                  content: () => <SettingsTab at={at} connection={loaded} />,
                },
              ]}
            />
          </Stack>
        )}
      </Loaded>
    </Page>
  );
}

/** A call of the provider's API, or of the credentials if it has none. */
function CallSnippets({ at, provider }: { at: At; provider: Provider }) {
  if (provider.proxy !== undefined) return <ProxySnippets at={at} provider={provider.name} />;
  return <CredentialsSnippets at={at} />;
}

/** The first suggestion of the playground, through the proxy. */
function ProxySnippets({ at, provider }: { at: At; provider: string }) {
  const { data: api } = useQuery(suggestionsQuery(provider));
  const suggestion = api?.calls[0];
  const examples = Object.entries(suggestion?.fields ?? {}).map(([name, { example }]) => [name, example]);
  const form =
    suggestion === undefined
      ? { ...emptyForm, path: '/PATH' }
      : formOf(suggestion, { ...emptyForm, fields: Object.fromEntries(examples) });
  const place = { baseUrl: location.origin, integration: at.integration, connection: at.id };
  return <Snippets title="Call the provider" scopes={['proxy:read']} call={callOf(form, place)} />;
}

function RefreshButton({ at }: { at: At }) {
  const environment = useEnvironment();
  const renew = useChange(() => refresh(environment, at), {
    stale: [[environment, 'connection']],
    done: 'The credentials are refreshed.',
    failed: 'Not refreshed',
  });
  return (
    <Button
      variant="default"
      leftSection={<IconRefresh size={16} />}
      loading={renew.isPending}
      onClick={() => renew.mutate()}
    >
      Refresh now
    </Button>
  );
}

function KeyFacts({ connection }: { connection: WholeConnection }) {
  const environment = useEnvironment();
  const { token, end_user: endUser } = connection;
  return (
    <Card>
      <Title order={2} mb="xs">
        About
      </Title>
      <Facts>
        <Fact name="Account">{connection.account?.email ?? connection.account?.id ?? 'unknown'}</Fact>
        <Fact name="End user">{endUser === null ? 'none' : endUserText(endUser)}</Fact>
        <Fact name="Integration">
          <AnchorLink inherit {...integrationPage(environment, connection.integration_id)}>
            {connection.integration_id}
          </AnchorLink>
        </Fact>
        <Fact name="Connection ID">
          <Copyable value={connection.connection_id} what="the connection ID" />
        </Fact>
        <Fact name="Connected">
          <RelativeTime at={connection.created_at} />
        </Fact>
        <Fact name="Last used">
          <RelativeTime at={connection.last_used_at} />
        </Fact>
        <Fact name="Last refresh">
          <RelativeTime at={token?.refreshed_at ?? null} />
        </Fact>
      </Facts>
    </Card>
  );
}

function ActivityTab({ at }: { at: At }) {
  const environment = useEnvironment();
  const query = useQuery(
    operationsQuery(environment, { integration_id: at.integration, connection_id: at.id, limit: 50 }),
  );
  return (
    <Loaded query={query}>
      {({ operations }) =>
        operations.length === 0 ? (
          <Dimmed>This connection has no activity yet.</Dimmed>
        ) : (
          <Stack>
            <OperationsTable operations={operations} isOfConnection />
            <AnchorLink
              size="sm"
              to="/$environment/activity"
              params={{ environment }}
              search={{ integration: at.integration, connection: at.id }}
            >
              View all activity
            </AnchorLink>
          </Stack>
        )
      }
    </Loaded>
  );
}

/** A later refresh may end the fault. */
const isFaulty = ({ cause, missing_scopes: missing, status }: Health) =>
  status !== 'active' || (cause !== null && missing.length === 0);

/** The cause of a problem of a connection, its time, and the next step. Nothing for a healthy connection. */
function HealthAlerts({
  at,
  connection: { health, next_check_at: next },
}: {
  at: At;
  connection: WholeConnection;
}) {
  const environment = useEnvironment();
  if (health.cause === null && health.warnings.length === 0) return null;
  return (
    <Stack gap="sm">
      {health.cause !== null && (
        <CauseAlert
          color={health.status === 'active' ? 'orange' : 'red'}
          title={causeName(health.cause)}
          at={health.since}
          nextStep={health.next_step}
          evidence={health.evidence}
        >
          {isFaulty(health) && (
            <NextCheck
              at={next}
              check={() => refresh(environment, at)}
              stale={[[environment, 'connection']]}
              done="The connection works again."
            />
          )}
        </CauseAlert>
      )}
      {health.warnings.map(({ code, at: time, next_step: step, evidence }) => (
        <CauseAlert
          key={code}
          color="yellow"
          title={sentence(code)}
          at={time}
          since="·"
          nextStep={step}
          evidence={evidence}
        />
      ))}
    </Stack>
  );
}
