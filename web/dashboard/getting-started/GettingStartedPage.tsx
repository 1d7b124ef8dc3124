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
import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { IconCheck } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { ConnectDialog } from '../connections/ConnectDialog.tsx';
import { installationOf } from '../integrations/queries.ts';
import { AnchorLink, ButtonLink, GuideLink } from '../links.tsx';
import { sheetProvider } from '../sheets/settings.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { type Progress, progressQuery, stepsOf } from './queries.ts';

type StepText = {
  about: string;
  action?: ReactNode;
  sample?: string;
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
  const [isOpen, { open, close }] = useDisclosure();
  const { integration, connection } = progress;
  const samples = samplesFor(progress);
  const ofConnection = connection && { environment, integration: connection.integration, id: connection.id };
  const mayChoose = mayWrite && ofConnection !== undefined && connection?.provider === sheetProvider;
  const texts: StepText[] = [
    {
      about: 'Choose a provider. With test credentials it works immediately, with the built-in sandbox.',
      action: mayWrite && (
        <ButtonLink
          to="/$environment/integrations/new"
          params={{ environment }}
          search={{ provider: 'google-sheet' }}
        >
          Add Google Sheets
        </ButtonLink>
      ),
    },
    {
      about: 'Connect a test account: open a connect link, choose an account, and grant access.',
      action: mayWrite && integration !== undefined && <Button onClick={open}>Connect an account</Button>,
    },
    {
      about:
        'The proxy adds the credentials. Try a call in the playground; your application then makes the same call.',
      action: mayWrite && ofConnection && (
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
        (mayChoose
          ? ' Choose a sheet to cache its rows without code, or save records from your own code.'
          : ''),
      action: mayChoose && (
        <ButtonLink
          to="/$environment/connections/$integration/$id/sheets/new"
          params={ofConnection}
          search={{}}
        >
          Choose a sheet
        </ButtonLink>
      ),
      isReady: mayChoose,
      sample: samples.save,
    },
    {
      about: 'Removes the payloads up to a record that you choose, and keeps the IDs, times and cursors.',
      action: ofConnection && (
        <ButtonLink to="/$environment/records/of/$integration/$id" params={ofConnection}>
          {mayWrite ? 'Choose a record' : 'Show the records'}
        </ButtonLink>
      ),
    },
  ];
  const steps = stepsOf(progress).map((step, index) => ({ ...step, ...texts[index]! }));
  const doneCount = steps.filter(({ isDone }) => isDone).length;
  const current = steps.findIndex(({ isDone }) => !isDone);
  return (
    <Stack gap="sm" maw={820}>
      <Group gap="sm">
        <Bar value={(doneCount / steps.length) * 100} flex={1} aria-label="Steps done" />
        <Dimmed role="status">
          {doneCount} of {steps.length}
        </Dimmed>
      </Group>
      {doneCount === steps.length && (
        <Alert color="green" icon={<IconCheck size={18} />} title="All steps are done">
          Continue in your application: the{' '}
          <Anchor inherit underline="always" href="/docs/">
            API reference
          </Anchor>{' '}
          lists every call.
          {mayWrite && ofConnection && (
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
      <ConnectDialog {...(integration && { integration: integration.key })} isOpen={isOpen} onClose={close} />
    </Stack>
  );
}

/** The call of a step as a shell command, with the address of this service and the current connection. */
function samplesFor({ integration, connection }: Progress): { save: string } {
  const baseUrl = integration === undefined ? location.origin : installationOf(integration.logo).baseUrl;
  const lines = [
    `curl ${baseUrl}/records`,
    '-H "Authorization: Bearer $KEY"',
    `-H "Integration-Id: ${connection?.integration ?? 'google-sheet'}"`,
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

function StepCard({ step, number, isCurrent }: { step: Step; number: number; isCurrent: boolean }) {
  const environment = useEnvironment();
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
          <Dimmed>{step.about}</Dimmed>
          {isCurrent && step.sample !== undefined && (
            <Group gap={4} wrap="nowrap" align="flex-start">
              <Code block flex={1} miw={0} tabIndex={0}>
                {step.sample}
              </Code>
              <CopyButton value={step.sample} what="the call" />
            </Group>
          )}
          {isCurrent && step.sample !== undefined && (
            <Dimmed>
              KEY is a secret key of this environment. <Code>.trellis/dev.key</Code> on the server holds the
              first one of <Code>dev</Code>. Create other keys in{' '}
              <AnchorLink
                inherit
                underline="always"
                to="/$environment/settings"
                params={{ environment }}
                search={{ tab: 'keys' }}
              >
                the settings
              </AnchorLink>
              .
            </Dimmed>
          )}
        </Stack>
      </Group>
    </Card>
  );
}
