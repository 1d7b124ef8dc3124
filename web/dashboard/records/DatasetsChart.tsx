import { Box, Card, Group, Progress, SimpleGrid, Stack, Text, Title } from '@mantine/core';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { Legend } from '../../ui/Legend.tsx';
import { formatSize } from '../../ui/size.ts';
import type { Dataset } from './queries.ts';

/** The maximum number of bars; the table below has all datasets. */
const maxBars = 8;
/** Also shown while the datasets load. */
export const chartTitles = { counts: 'Records', bytes: 'Bytes stored, encrypted' };

type Part = { name: string; color: string; of: (dataset: Dataset) => number };

const counts: Part[] = [
  { name: 'Live', color: 'trellis.6', of: ({ records }) => records },
  { name: 'Deleted', color: 'gray.5', of: ({ deleted }) => deleted },
];
const bytes: Part[] = [
  { name: 'Stored, encrypted', color: 'teal.6', of: ({ payload_bytes }) => payload_bytes },
];

/** Counts and bytes of the largest datasets. */
export function DatasetsChart({ datasets }: { datasets: Dataset[] }) {
  const shown = datasets.toSorted((a, b) => b.records + b.deleted - a.records - a.deleted).slice(0, maxBars);
  const left = datasets.length - shown.length;
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
      <Bars
        title={chartTitles.counts}
        datasets={shown}
        parts={counts}
        format={(count) => count.toLocaleString()}
        left={left}
      />
      <Bars title={chartTitles.bytes} datasets={shown} parts={bytes} format={formatSize} left={left} />
    </SimpleGrid>
  );
}

/** A bar for each dataset, in proportion to the largest. */
function Bars({
  title,
  datasets,
  parts,
  format,
  left,
}: {
  title: string;
  datasets: Dataset[];
  parts: Part[];
  format: (sum: number) => string;
  left: number;
}) {
  const sumOf = (dataset: Dataset) => parts.reduce((sum, { of }) => sum + of(dataset), 0);
  const max = Math.max(...datasets.map(sumOf), 1);
  return (
    <Card>
      <Group justify="space-between" mb="sm">
        <Title order={2}>{title}</Title>
        {parts.length > 1 && <Legend parts={parts} />}
      </Group>
      <Stack gap="xs">
        {datasets.map((dataset) => (
          <Box key={`${dataset.model}:${dataset.variant}`}>
            <Group justify="space-between" gap="xs" wrap="nowrap">
              <Text size="sm" truncate>
                {dataset.variant === 'base' ? dataset.model : `${dataset.model} · ${dataset.variant}`}
              </Text>
              <Text size="sm" className="unbroken">
                {format(sumOf(dataset))}
              </Text>
            </Group>
            <Progress.Root size={10}>
              {parts.map(({ name, color, of }) => (
                <Progress.Section key={name} withAria={false} color={color} value={share(of(dataset), max)} />
              ))}
            </Progress.Root>
          </Box>
        ))}
      </Stack>
      {left > 0 && <Dimmed>{`The ${maxBars} largest; ${left} more are in the table.`}</Dimmed>}
    </Card>
  );
}

/** In percent. A small part beside a large one stays visible. */
const share = (part: number, max: number) => (part === 0 ? 0 : Math.max((part / max) * 100, 0.5));
