import {
  Alert,
  Anchor,
  Progress as Bar,
  Button,
  Card,
  Code,
  Group,
  Skeleton,
  Stack,
  Text,
  ThemeIcon,
  Title,
} from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { IconCheck } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { ConnectDialog } from '../connections/ConnectDialog.tsx';
import { installationOf } from '../integrations/installation.ts';
import { sheetProvider } from '../sheets/settings.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { type Progress, progressQuery } from './queries.ts';

type Step = {
  title: string;
  isDone: boolean;
  about: string;
  action?: ReactNode;
  sample?: string;
  /** It can be done before the steps in front of it. */
  isReady?: boolean;
};

export function GettingStartedPage() {
  const environment = useEnvironment();
  const query = useQuery(progressQuery(environment));
  return (
    <Page
      title="Getting started"
      about="Five steps from nothing to a cache of records. Each ticks itself off when it has really happened."
    >
      <Loaded query={query} loading={<LoadingSteps />}>
        {(progress) => <Steps environment={environment} progress={progress} />}
      </Loaded>
    </Page>
  );
}

function Steps({ environment, progress }: { environment: string; progress: Progress }) {
  const mayWrite = useMayWrite();
  const [isOpen, { open, close }] = useDisclosure();
  const { integration, connection } = progress;
  const samples = samplesFor(progress);
  const ofConnection = connection && { environment, integration: connection.integration, id: connection.id };
  const mayChoose = mayWrite && ofConnection !== undefined && connection?.provider === sheetProvider;
  const steps: Step[] = [
    {
      title: 'Add an integration',
      isDone: integration !== undefined,
      about: 'Choose a provider. With test credentials it works at once, against the built-in sandbox.',
      action: mayWrite && (
        <Button
          renderRoot={(props) => (
            <Link
              to="/$environment/integrations/new"
              params={{ environment }}
              search={{ provider: 'google-sheet' }}
              {...props}
            />
          )}
        >
          Add Google Sheets
        </Button>
      ),
    },
    {
      title: 'Connect an account',
      isDone: connection !== undefined,
      about: 'Be your own first user: open a connect link, choose an account, agree.',
      action: mayWrite && integration !== undefined && <Button onClick={open}>Connect an account</Button>,
    },
    {
      title: 'Call the provider',
      isDone: progress.hasProxied,
      about:
        'The proxy puts the credentials on. Try it in the playground first; your application then makes the same call.',
      action: mayWrite && ofConnection && (
        <Button
          renderRoot={(props) => (
            <Link
              to="/$environment/playground"
              params={{ environment }}
              search={{ integration: ofConnection.integration, connection: ofConnection.id }}
              {...props}
            />
          )}
        >
          Open the playground
        </Button>
      ),
    },
    {
      title: 'Save records',
      isDone: progress.hasSaved,
      about:
        'What a sync has fetched is kept here, and read by cursor: nothing is missed, nothing comes twice.' +
        (mayChoose
          ? ' Choose a sheet, and its rows are records, without code; what your own code fetches, it saves with a call.'
          : ''),
      action: mayChoose && (
        <Button
          renderRoot={(props) => (
            <Link
              to="/$environment/connections/$integration/$id/sheets/new"
              params={ofConnection}
              search={{}}
              {...props}
            />
          )}
        >
          Choose a sheet
        </Button>
      ),
      isReady: mayChoose,
      sample: samples.save,
    },
    {
      title: 'Prune what you have read',
      isDone: progress.hasPruned,
      about: 'Empties the payloads up to a record that you choose, and keeps what tells changes apart.',
      action: ofConnection && (
        <Button
          renderRoot={(props) => (
            <Link to="/$environment/records/of/$integration/$id" params={ofConnection} {...props} />
          )}
        >
          {mayWrite ? 'Choose a record' : 'Look at the records'}
        </Button>
      ),
    },
  ];
  const doneCount = steps.filter(({ isDone }) => isDone).length;
  const current = steps.findIndex(({ isDone }) => !isDone);
  return (
    <Stack gap="sm" maw={820}>
      <Group gap="sm">
        <Bar value={(doneCount / steps.length) * 100} flex={1} aria-label="Steps done" />
        <Text size="sm" c="dimmed" role="status">
          {doneCount} of {steps.length}
        </Text>
      </Group>
      {doneCount === steps.length && (
        <Alert color="green" icon={<IconCheck size={18} />} title="All of it works">
          From here your application takes over: the{' '}
          <Anchor inherit underline="always" href="/docs/">
            interface
          </Anchor>{' '}
          names every call.
          {mayWrite && ofConnection && (
            <>
              {' '}
              Or send another one from the{' '}
              <Anchor
                inherit
                underline="always"
                renderRoot={(props) => (
                  <Link
                    to="/$environment/playground"
                    params={{ environment }}
                    search={{ integration: ofConnection.integration, connection: ofConnection.id }}
                    {...props}
                  />
                )}
              >
                playground
              </Anchor>
              , with {connection?.account}.
            </>
          )}
        </Alert>
      )}
      {steps.map((step, index) => (
        <StepCard
          key={step.title}
          step={step}
          number={index + 1}
          isCurrent={index === current}
          environment={environment}
        />
      ))}
      <ConnectDialog
        environment={environment}
        {...(integration && { integration: integration.key })}
        isOpen={isOpen}
        onClose={close}
      />
    </Stack>
  );
}

/** The call of a step as a shell takes it, with this installation's address and the connection that there is. */
function samplesFor({ integration, connection }: Progress): { save: string } {
  const baseUrl = integration === undefined ? location.origin : installationOf(integration.logo).baseUrl;
  const lines = [
    `curl ${baseUrl}/records`,
    '-H "Authorization: Bearer $KEY"',
    `-H "Provider-Config-Key: ${connection?.integration ?? 'google-sheet'}"`,
    `-H "Connection-Id: ${connection?.id ?? '...'}"`,
    '-H "Content-Type: application/json"',
    `-d '{"model": "Row", "records": [{"id": "1", "name": "Ada"}, {"id": "2", "name": "Alan"}]}'`,
  ];
  return { save: lines.join(' \\\n  ') };
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

function StepCard({
  step,
  number,
  isCurrent,
  environment,
}: {
  step: Step;
  number: number;
  isCurrent: boolean;
  environment: string;
}) {
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
            {(isCurrent || (step.isReady && !step.isDone)) && step.action}
          </Group>
          <Text size="sm" c="dimmed">
            {step.about}
          </Text>
          {isCurrent && step.sample !== undefined && (
            <Group gap={4} wrap="nowrap" align="flex-start">
              <Code block flex={1} miw={0} tabIndex={0}>
                {step.sample}
              </Code>
              <CopyButton value={step.sample} what="the call" />
            </Group>
          )}
          {isCurrent && step.sample !== undefined && (
            <Text size="sm" c="dimmed">
              KEY is a secret key of this environment. <Code>.trellis/dev.key</Code> on the server holds the
              first one of <Code>dev</Code>; others are made in{' '}
              <Anchor
                inherit
                underline="always"
                renderRoot={(props) => (
                  <Link
                    to="/$environment/settings"
                    params={{ environment }}
                    search={{ tab: 'keys' }}
                    {...props}
                  />
                )}
              >
                the settings
              </Anchor>
              .
            </Text>
          )}
        </Stack>
      </Group>
    </Card>
  );
}
