import { Box, Card, Code, Group, SimpleGrid, Skeleton, Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { lazyRouteComponent, useParams } from '@tanstack/react-router';
import { Suspense } from 'react';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { IconDatabase, IconPlugConnected } from '../../ui/icons.tsx';
import { ListTable } from '../../ui/ListTable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { Sliced } from '../../ui/Sliced.tsx';
import { spellSize } from '../../ui/size.ts';
import { type At, connectionQuery, datasetsQuery } from '../connections/queries.ts';
import { BackLink, ButtonLink, connectionPage, GuideLink } from '../links.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { DatasetLink } from './DatasetsCard.tsx';
import type { Dataset } from './queries.ts';

const DatasetsChart = lazyRouteComponent(() => import('./DatasetsChart.tsx'), 'DatasetsChart');

/** The datasets of one connection. */
export function DatasetsPage() {
  const environment = useEnvironment();
  const at: At = useParams({ from: '/$environment/records/of/$integration/$id' });
  const { data: connection } = useQuery(connectionQuery(environment, at));
  const datasets = useQuery({ ...datasetsQuery(environment, at), refetchInterval: 10_000 });
  return (
    <Page
      title={`Records of ${connection?.account?.email ?? at.id}`}
      before={
        <BackLink to="/$environment/records" params={{ environment }}>
          Records
        </BackLink>
      }
      about={
        <>
          {at.integration} · <span className="wrap">{at.id}</span>
        </>
      }
      actions={
        <ButtonLink
          variant="default"
          leftSection={<IconPlugConnected size={16} />}
          {...connectionPage(environment, at)}
        >
          Open the connection
        </ButtonLink>
      }
    >
      <Loaded query={datasets} loading={<Waiting />}>
        {(found) =>
          found.length === 0 ? (
            <NoRecords at={at} />
          ) : (
            <Stack gap="lg">
              <Suspense fallback={<WaitingCharts />}>
                <DatasetsChart datasets={found} />
              </Suspense>
              <Sliced items={found}>{(shown) => <DatasetsTable datasets={shown} at={at} />}</Sliced>
            </Stack>
          )
        }
      </Loaded>
    </Page>
  );
}

function DatasetsTable({ datasets, at }: { datasets: Dataset[]; at: At }) {
  return (
    <ListTable
      rows={datasets}
      keyOf={(dataset) => `${dataset.model}:${dataset.variant}`}
      rowClass="fill-row"
      columns={[
        { title: 'Dataset', cell: (dataset) => <DatasetLink at={at} dataset={dataset} /> },
        { title: 'Live', ta: 'right', cell: (dataset) => dataset.records.toLocaleString() },
        {
          title: 'Deleted',
          ta: 'right',
          visibleFrom: 'sm',
          cell: (dataset) => dataset.deleted.toLocaleString(),
        },
        {
          title: 'Pruned',
          ta: 'right',
          visibleFrom: 'sm',
          cell: (dataset) => dataset.pruned.toLocaleString(),
        },
        {
          title: 'Payloads',
          ta: 'right',
          className: 'unbroken',
          cell: (dataset) => spellSize(dataset.payload_bytes),
        },
        {
          title: 'Last change',
          visibleFrom: 'sm',
          cell: (dataset) => (
            <Box pos="relative" w="fit-content">
              <RelativeTime at={dataset.last_modified_at} size="sm" />
            </Box>
          ),
        },
      ]}
    />
  );
}

function Waiting() {
  return (
    <Stack gap="lg" role="status" aria-label="Loading">
      <WaitingCharts />
      <Skeleton h={170} radius="md" />
    </Stack>
  );
}

function WaitingCharts() {
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
      {['Records', 'Bytes of payloads'].map((title) => (
        <Card key={title}>
          <Title order={2} mb="sm">
            {title}
          </Title>
          <Skeleton h={80} />
        </Card>
      ))}
    </SimpleGrid>
  );
}

/** How to save records for a connection without any. */
function NoRecords({ at }: { at: At }) {
  const command = [
    `curl -s ${location.origin}/records`,
    `-H "Authorization: Bearer $KEY"`,
    `-H 'Content-Type: application/json'`,
    `-H ${quoted(`Integration-Id: ${at.integration}`)}`,
    `-H ${quoted(`Connection-Id: ${at.id}`)}`,
    `-d '{"model":"City","records":[{"id":7,"city":"Oslo"}]}'`,
  ].join(' \\\n  ');
  return (
    <EmptyState
      icon={<IconDatabase size={26} />}
      title="No records yet"
      action={
        <Stack gap={4} ta="left" w="100%">
          <Group justify="space-between">
            <Text size="sm">Save a first record from your shell</Text>
            <CopyButton value={command} what="the command" />
          </Group>
          <Code block tabIndex={0}>
            {command}
          </Code>
        </Stack>
      }
    >
      A sync function saves its records here automatically. Your application saves records with{' '}
      <Code>POST /records</Code> and a key with the scope <Code>records:write</Code>.{' '}
      <GuideLink to="records" />
    </EmptyState>
  );
}

/** A shell argument. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
