import { Badge, Box, Card, Code, Group, SimpleGrid, Skeleton, Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { IconDatabase } from '../../ui/icons.tsx';
import { ListTable } from '../../ui/ListTable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { Sliced } from '../../ui/Sliced.tsx';
import { formatSize } from '../../ui/size.ts';
import { type At, datasetsQuery } from '../connections/queries.ts';
import { datasetPage, GuideLink } from '../links.tsx';
import { SaveSnippets } from '../Snippets.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { chartTitles, DatasetsChart } from './DatasetsChart.tsx';
import type { Dataset } from './queries.ts';

/** The datasets of one connection. */
export function DatasetsTab({ at }: { at: At }) {
  const environment = useEnvironment();
  const datasets = useQuery({ ...datasetsQuery(environment, at), refetchInterval: 10_000 });
  return (
    <Loaded query={datasets} loading={<Waiting />}>
      {(found) =>
        found.length === 0 ? (
          <NoRecords at={at} />
        ) : (
          <Stack gap="lg">
            <DatasetsChart datasets={found} />
            <Sliced items={found}>{(shown) => <DatasetsTable datasets={shown} at={at} />}</Sliced>
          </Stack>
        )
      }
    </Loaded>
  );
}

/** The name of a dataset with its state, as a link. */
export function DatasetLink({
  at,
  dataset: { model, variant, delete_tracking: tracking },
}: {
  at: At;
  dataset: Pick<Dataset, 'model' | 'variant' | 'delete_tracking'>;
}) {
  const environment = useEnvironment();
  return (
    <Group gap={6}>
      <Link className="fill-link" {...datasetPage(environment, { ...at, model, variant })}>
        <Text span fw={550} size="sm" className="wrap">
          {model}
        </Text>
      </Link>
      {variant !== 'base' && <Badge color="gray">{variant}</Badge>}
      {tracking === 'held' && <Badge color="orange">deletion held</Badge>}
      {tracking === 'open' && <Badge color="teal">full sync runs</Badge>}
    </Group>
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
          title: 'Stored, encrypted',
          ta: 'right',
          className: 'unbroken',
          cell: (dataset) => formatSize(dataset.payload_bytes),
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
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
        {Object.values(chartTitles).map((title) => (
          <Card key={title}>
            <Title order={2} mb="sm">
              {title}
            </Title>
            <Skeleton h={80} />
          </Card>
        ))}
      </SimpleGrid>
      <Skeleton h={170} radius="md" />
    </Stack>
  );
}

/** How to save records for a connection without any. */
function NoRecords({ at }: { at: At }) {
  return (
    <Stack align="center" pb="lg">
      <EmptyState icon={<IconDatabase size={26} />} title="No records yet">
        A sync function saves its records here automatically. Your application saves records with{' '}
        <Code>POST /records</Code>. <GuideLink to="records" />
      </EmptyState>
      <Card w="100%" maw={720}>
        <SaveSnippets at={at} />
      </Card>
    </Stack>
  );
}
