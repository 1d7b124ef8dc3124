import { Box, Button, Card, SimpleGrid, Skeleton, Stack, Table, Text, Title } from '@mantine/core';
import { IconPlugConnected } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, lazyRouteComponent, useParams } from '@tanstack/react-router';
import { Suspense } from 'react';
import { BackLink } from '../../ui/BackLink.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { Sliced } from '../../ui/Sliced.tsx';
import { spellSize } from '../../ui/size.ts';
import { type At, connectionQuery, datasetsQuery } from '../connections/queries.ts';
import { useEnvironment } from '../shell/environment.ts';
import { DatasetLink } from './DatasetLink.tsx';
import { NoRecords } from './NoRecords.tsx';
import type { Dataset } from './queries.ts';

const DatasetsChart = lazyRouteComponent(() => import('./DatasetsChart.tsx'), 'DatasetsChart');

/** What is kept of one connection. */
export function DatasetsPage() {
  const environment = useEnvironment();
  const at: At = useParams({ from: '/$environment/records/of/$integration/$id' });
  const { data: connection } = useQuery(connectionQuery(environment, at));
  const datasets = useQuery({ ...datasetsQuery(environment, at), refetchInterval: 10_000 });
  return (
    <Page
      title={`Records of ${connection?.account?.email ?? at.id}`}
      before={
        <BackLink link={(props) => <Link to="/$environment/records" params={{ environment }} {...props} />}>
          Records
        </BackLink>
      }
      about={
        <>
          {at.integration} · <span className="wrap">{at.id}</span>
        </>
      }
      actions={
        <Button
          variant="default"
          leftSection={<IconPlugConnected size={16} />}
          renderRoot={(props) => (
            <Link
              to="/$environment/connections/$integration/$id"
              params={{ environment, ...at }}
              {...props}
            />
          )}
        >
          The connection
        </Button>
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
              <Sliced items={found}>
                {(shown) => <DatasetsTable datasets={shown} environment={environment} at={at} />}
              </Sliced>
            </Stack>
          )
        }
      </Loaded>
    </Page>
  );
}

function DatasetsTable({ datasets, environment, at }: { datasets: Dataset[]; environment: string; at: At }) {
  return (
    <Table.ScrollContainer minWidth={300} className="framed">
      <Table verticalSpacing="sm" horizontalSpacing="md">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Dataset</Table.Th>
            <Table.Th ta="right">Live</Table.Th>
            <Table.Th ta="right" visibleFrom="sm">
              Deleted
            </Table.Th>
            <Table.Th ta="right" visibleFrom="sm">
              Pruned
            </Table.Th>
            <Table.Th ta="right">Payloads</Table.Th>
            <Table.Th visibleFrom="sm">Last change</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {datasets.map((dataset) => (
            <Table.Tr key={`${dataset.model}:${dataset.variant}`} className="fill-row">
              <Table.Td>
                <DatasetLink environment={environment} at={at} dataset={dataset} />
              </Table.Td>
              <Table.Td ta="right">{dataset.records.toLocaleString()}</Table.Td>
              <Table.Td ta="right" visibleFrom="sm">
                {dataset.deleted.toLocaleString()}
              </Table.Td>
              <Table.Td ta="right" visibleFrom="sm">
                {dataset.pruned.toLocaleString()}
              </Table.Td>
              <Table.Td ta="right" className="unbroken">
                {spellSize(dataset.payload_bytes)}
              </Table.Td>
              <Table.Td visibleFrom="sm">
                <Box pos="relative" w="fit-content">
                  <RelativeTime at={dataset.last_modified_at} size="sm" />
                </Box>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
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
          <Skeleton h={200} />
          <Text size="sm">&nbsp;</Text>
        </Card>
      ))}
    </SimpleGrid>
  );
}
