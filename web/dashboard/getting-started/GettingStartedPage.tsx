import { Progress as Bar, Button, Card, Code, Group, Stack, Text, ThemeIcon, Title } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { IconCheck } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { Page } from '../../ui/Page.tsx';
import { ConnectDialog } from '../connections/ConnectDialog.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { type Progress, progressQuery } from './queries.ts';

type Step = { title: string; isDone: boolean; about: string; action?: ReactNode; sample?: string };

export function GettingStartedPage() {
  const environment = useEnvironment();
  const query = useQuery(progressQuery(environment));
  return (
    <Page
      title="Getting started"
      about="Five steps from nothing to a cache of records. Each ticks itself off when it has really happened."
    >
      <Loaded query={query} loading={<LoadingRows rows={5} height={88} />}>
        {(progress) => <Steps environment={environment} progress={progress} />}
      </Loaded>
    </Page>
  );
}

function Steps({ environment, progress }: { environment: string; progress: Progress }) {
  const mayWrite = useMayWrite();
  const [isOpen, { open, close }] = useDisclosure();
  const { integration, connection } = progress;
  const headers = [
    `-H "Authorization: Bearer $KEY"`,
    `-H "Provider-Config-Key: ${connection?.integration ?? 'google-sheet'}"`,
    `-H "Connection-Id: ${connection?.id ?? '...'}"`,
  ].join(' \\\n  ');
  const json = `-H "Content-Type: application/json"`;
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
      about: 'Your application calls the provider through the proxy, which puts the credentials on.',
      sample: `curl ${location.origin}/proxy/v4/spreadsheets/{spreadsheetId}/values/Sheet1 \\\n  ${headers}`,
    },
    {
      title: 'Save records',
      isDone: progress.hasSaved,
      about:
        'What a sync has fetched is kept here, and read by cursor: nothing is missed, nothing comes twice.',
      sample: `curl ${location.origin}/records \\\n  ${headers} ${json} \\\n  -d '{"model": "Row", "records": [{"id": "1", "name": "Ada"}]}'`,
    },
    {
      title: 'Prune what you have read',
      isDone: progress.hasPruned,
      about: 'Empties the payloads up to a cursor and keeps what tells changes apart.',
      sample: `curl -X PATCH ${location.origin}/records/prune \\\n  ${headers} ${json} \\\n  -d '{"model": "Row", "until_cursor": "..."}'`,
    },
  ];
  const doneCount = steps.filter(({ isDone }) => isDone).length;
  const current = steps.findIndex(({ isDone }) => !isDone);
  return (
    <Stack gap="sm" maw={820}>
      <Group gap="sm">
        <Bar value={(doneCount / steps.length) * 100} flex={1} aria-label="Steps done" />
        <Text size="sm" c="dimmed">
          {doneCount} of {steps.length}
        </Text>
      </Group>
      {steps.map((step, index) => (
        <StepCard key={step.title} step={step} number={index + 1} isCurrent={index === current} />
      ))}
      <ConnectDialog environment={environment} isOpen={isOpen} onClose={close} />
    </Stack>
  );
}

function StepCard({ step, number, isCurrent }: { step: Step; number: number; isCurrent: boolean }) {
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
            {isCurrent && step.action}
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
        </Stack>
      </Group>
    </Card>
  );
}
