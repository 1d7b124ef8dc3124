import {
  Alert,
  Anchor,
  Progress as Bar,
  Button,
  Card,
  Group,
  Loader,
  Skeleton,
  Stack,
  Text,
  ThemeIcon,
  Title,
} from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { IconAlertTriangle, IconCheck } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { useNow } from '../../ui/time.ts';
import { useFocusIfLost } from '../../ui/use-focus-if-lost.ts';
import { failureText } from '../connections/failure-text.ts';
import { openTab } from '../connections/open-tab.ts';
import {
  connectProgressQuery,
  isLinkOver,
  newConnectLink,
  type SessionLink,
} from '../connections/queries.ts';
import { createTestIntegration } from '../integrations/queries.ts';
import { AnchorLink, ButtonLink, connectionPage, datasetPage, GuideLink } from '../links.tsx';
import { CredentialsSnippets, SaveSnippets } from '../Snippets.tsx';
import { sheetProvider } from '../sheets/settings.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { type Progress, progressQuery, stepsOf } from './queries.ts';

type StepText = {
  about: string;
  action?: ReactNode;
  /** The state of the action. */
  below?: ReactNode;
  code?: ReactNode;
  /** The step can be done before the previous ones. */
  isReady?: boolean;
};
type Step = StepText & ReturnType<typeof stepsOf>[number];

export function GettingStartedPage() {
  const environment = useEnvironment();
  const query = useQuery(progressQuery(environment));
  return (
    <Page
      title="Getting started"
      about={
        <>
          Complete these five steps to sync your first records. <GuideLink to="getting-started" />
        </>
      }
    >
      <Loaded query={query} loading={<LoadingSteps />}>
        {(progress) => <Steps progress={progress} />}
      </Loaded>
    </Page>
  );
}

function Steps({ progress }: { progress: Progress }) {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const connect = useConnect(progress.integration?.key);
  const sync = useSync();
  const { connection, dataset } = progress;
  const ofConnection = connection && { environment, integration: connection.integration, id: connection.id };
  const mayChoose = mayWrite && ofConnection !== undefined && connection?.provider === sheetProvider;
  const texts: StepText[] = [
    {
      about:
        'Start with the sandbox: it adds Google Sheets with test credentials, and connects a test account. Or choose the provider that you need.',
      action: mayWrite && (
        <>
          <ButtonLink
            variant="default"
            to="/$environment/integrations/new"
            params={{ environment }}
            search={{}}
          >
            Choose a provider
          </ButtonLink>
          <Button loading={connect.isPending} onClick={connect.start}>
            Start with the sandbox
          </Button>
        </>
      ),
      below: connect.isError && <FaultNotice error={connect.error} />,
    },
    {
      about:
        'Connect a test account: open a connect link, then choose an account and grant access, or enter credentials.',
      action: mayWrite && (
        <Button
          variant={connect.data === undefined ? 'filled' : 'default'}
          loading={connect.isPending}
          onClick={connect.start}
        >
          Connect an account
        </Button>
      ),
      below: connect.isError ? (
        <FaultNotice error={connect.error} />
      ) : (
        connect.data !== undefined && <LinkProgress {...connect.data} />
      ),
    },
    {
      about:
        connection?.hasApi === false
          ? 'This provider has no HTTP API: your application reads the credentials and connects with them.'
          : 'The proxy adds the credentials. Try a call in the playground; your application then makes the same call.',
      code: ofConnection && !connection?.hasApi && <CredentialsSnippets at={ofConnection} />,
      action: mayWrite && ofConnection && connection?.hasApi && (
        <ButtonLink
          to="/$environment/playground"
          params={{ environment }}
          search={{ integration: ofConnection.integration, connection: ofConnection.id }}
        >
          Open the playground
        </ButtonLink>
      ),
    },
    {
      about:
        'Fetched records are cached here and read by cursor, so that you read each change exactly once.' +
        (mayChoose ? ' Sync the rows of a sheet without code, or save records from your own code.' : ''),
      action: mayChoose && (
        <>
          <ButtonLink
            variant="default"
            to="/$environment/connections/$integration/$id/sheets/new"
            params={ofConnection}
            search={{}}
          >
            Choose a sheet
          </ButtonLink>
          {connection?.isTest === true && (
            <Button loading={sync.isPending || sync.isSuccess} onClick={() => sync.mutate(ofConnection)}>
              Sync a sample sheet
            </Button>
          )}
        </>
      ),
      isReady: mayChoose,
      code: ofConnection && <SaveSnippets at={ofConnection} />,
      below: sync.isError ? (
        <FaultNotice error={sync.error} />
      ) : (
        sync.isSuccess &&
        ofConnection && (
          <Pending>
            Reading the sheet.{' '}
            <AnchorLink
              inherit
              underline="always"
              to="/$environment/connections/$integration/$id/sheets/of/$variant"
              params={{ ...ofConnection, variant: 'base' }}
            >
              View the sheet
            </AnchorLink>
          </Pending>
        )
      ),
    },
    {
      about:
        'Open a record, then choose Prune up to this record. The payloads up to it are removed; IDs, times and cursors remain.',
      action: ofConnection && (
        <ButtonLink
          {...(dataset === undefined
            ? connectionPage(environment, ofConnection, 'records')
            : datasetPage(environment, { ...ofConnection, ...dataset }))}
        >
          {mayWrite ? 'Choose a record' : 'Show the records'}
        </ButtonLink>
      ),
    },
  ];
  const steps = stepsOf(progress).map((step, index) => ({ ...step, ...texts[index]! }));
  const doneCount = steps.filter(({ isDone }) => isDone).length;
  const current = steps.findIndex(({ isDone }) => !isDone);
  const list = useFocusIfLost<HTMLDivElement>(doneCount);
  return (
    <Stack gap="sm" maw={820} ref={list} tabIndex={-1} className="unmarked">
      <Group gap="sm">
        <Bar value={(doneCount / steps.length) * 100} flex={1} aria-label="Steps done" />
        <Dimmed role="status">
          {doneCount} of {steps.length}
        </Dimmed>
      </Group>
      {doneCount === steps.length && (
        <Alert color="green" icon={<IconCheck size={18} />} title="All steps are done">
          Continue in your application: <GuideLink to="add-to-your-app" /> has the routes and the button. The{' '}
          <Anchor inherit underline="always" href="/docs/">
            API reference
          </Anchor>{' '}
          lists every call.
          {mayWrite && ofConnection && connection?.hasApi && (
            <>
              {' '}
              You can also send another call from the{' '}
              <AnchorLink
                inherit
                underline="always"
                to="/$environment/playground"
                params={{ environment }}
                search={{ integration: ofConnection.integration, connection: ofConnection.id }}
              >
                playground
              </AnchorLink>
              , with {connection?.account}.
            </>
          )}
        </Alert>
      )}
      {steps.map((step, index) => (
        <StepCard key={step.title} step={step} number={index + 1} isCurrent={index === current} />
      ))}
    </Stack>
  );
}

function Pending({ children }: { children: ReactNode }) {
  return (
    <Group gap="xs" role="status">
      <Loader size="xs" aria-hidden />
      <Dimmed>{children}</Dimmed>
    </Group>
  );
}

/** The connect link while the account is not connected, and why its last attempt failed. */
function LinkProgress({ link, token }: SessionLink) {
  const environment = useEnvironment();
  const nowMs = useNow();
  const { data } = useQuery(connectProgressQuery(environment, token));
  const isOver = data !== undefined && data.connection === null && isLinkOver(data, nowMs);
  if (data?.failure || isOver) {
    return (
      <Alert color="yellow" icon={<IconAlertTriangle size={18} />} title="The account is not connected">
        {data?.failure ? failureText(data.failure.cause, { isOver }) : 'The link has expired.'}{' '}
        {!isOver && <LinkAnchor link={link} />}
      </Alert>
    );
  }
  return (
    <Pending>
      Waiting for the account. <LinkAnchor link={link} />
    </Pending>
  );
}

function LinkAnchor({ link }: { link: string }) {
  return (
    <Anchor inherit c="inherit" underline="always" href={link} target="_blank" rel="noopener">
      Open the connect link
    </Anchor>
  );
}

/** Opens a connect link for the integration; without one, for a new one that uses the sandbox. */
function useConnect(integration: string | undefined) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const connect = useMutation({
    mutationFn: async ({ show }: ReturnType<typeof openTab>) => {
      const made = { provider: sheetProvider, integration_id: sheetProvider };
      const key = integration ?? (await createTestIntegration(environment, made)).integration_id;
      const link = await newConnectLink(environment, key, 'test-user');
      show(link.link);
      return link;
    },
    onError: (_, tab) => tab.close(),
    onSettled: () => queries.invalidateQueries({ queryKey: [environment] }),
  });
  return { ...connect, start: () => connect.mutate(openTab()) };
}

/** Saves a sample sheet for a connection and starts its first run. */
function useSync() {
  const environment = useEnvironment();
  const queries = useQueryClient();
  return useMutation({
    mutationFn: async (at: { integration: string; id: string }) => {
      const { syncSampleSheet } = await import('../sheets/sample.ts');
      await syncSampleSheet(environment, at);
    },
    onSettled: () => queries.invalidateQueries({ queryKey: [environment] }),
  });
}

function LoadingSteps() {
  return (
    <Stack gap="sm" maw={820} role="status" aria-label="Loading">
      <Skeleton h={22} radius="md" />
      {[1, 2, 3, 4, 5].map((step) => (
        <Skeleton key={step} h={88} radius="md" />
      ))}
    </Stack>
  );
}

function StepCard({ step, number, isCurrent }: { step: Step; number: number; isCurrent: boolean }) {
  const isOpen = isCurrent || (step.isReady === true && !step.isDone);
  return (
    <Card>
      <Group wrap="nowrap" align="flex-start" gap="md">
        <ThemeIcon
          radius="xl"
          size={30}
          color={step.isDone ? 'teal' : 'trellis'}
          variant={step.isDone || isCurrent ? 'filled' : 'light'}
          {...(step.isDone && { role: 'img', 'aria-label': 'done' })}
        >
          {step.isDone ? <IconCheck size={18} /> : <Text fw={600}>{number}</Text>}
        </ThemeIcon>
        <Stack gap={6} miw={0} flex={1}>
          <Group justify="space-between" gap="xs">
            <Title order={2}>{step.title}</Title>
            {isOpen && <Group gap="xs">{step.action}</Group>}
          </Group>
          <Dimmed>{step.about}</Dimmed>
          {isOpen && step.below}
          {isCurrent && step.code}
        </Stack>
      </Group>
    </Card>
  );
}
