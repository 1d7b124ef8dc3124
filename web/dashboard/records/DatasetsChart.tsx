import { BarChart } from '@mantine/charts';
import { Dimmed } from '../../ui/Dimmed.tsx';
import '@mantine/charts/styles.css';
import { Card, SimpleGrid, Title } from '@mantine/core';
import { spellSize } from '../../ui/size.ts';
import type { Dataset } from './queries.ts';

/** The maximum number of bars; the table below has all datasets. */
const maxBars = 8;

/** Counts and bytes of the largest datasets. */
export function DatasetsChart({ datasets }: { datasets: Dataset[] }) {
  const shown = datasets
    .toSorted((a, b) => b.records + b.deleted - a.records - a.deleted)
    .slice(0, maxBars)
    .map(({ model, variant, records, deleted, pruned, payload_bytes }) => ({
      name: variant === 'base' ? model : `${model} · ${variant}`,
      Live: records,
      Deleted: deleted,
      Pruned: pruned,
      Bytes: payload_bytes,
    }));
  const common = {
    h: Math.max(200, shown.length * 44 + 60),
    data: shown,
    dataKey: 'name',
    orientation: 'vertical',
    gridAxis: 'y',
    tickLine: 'none',
    maxBarWidth: 18,
    // A small dataset beside a large one stays visible.
    barProps: { minPointSize: (value: unknown) => (Number(value) > 0 ? 3 : 0) },
    yAxisProps: { width: 110, tickFormatter: shortened },
    barChartProps: { accessibilityLayer: false },
  } as const;
  const isPruned = shown.some(({ Pruned }) => Pruned > 0);
  const left = datasets.length - shown.length;
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
      <Card>
        <Title order={2} mb="sm">
          Records
        </Title>
        <BarChart
          {...common}
          withLegend
          legendProps={{ verticalAlign: 'bottom', height: 28 }}
          valueFormatter={(value) => value.toLocaleString()}
          xAxisProps={{ tickFormatter: short, allowDecimals: false }}
          series={[
            { name: 'Live', color: 'trellis.6', stackId: 'all' },
            { name: 'Deleted', color: 'gray.5', stackId: 'all' },
            ...(isPruned ? [{ name: 'Pruned', color: 'yellow.6', stackId: 'pruned' }] : []),
          ]}
        />
        <Note left={left} />
      </Card>
      <Card>
        <Title order={2} mb="sm">
          Bytes of payloads
        </Title>
        <BarChart
          {...common}
          valueFormatter={spellSize}
          xAxisProps={{ tickFormatter: spellSize }}
          series={[{ name: 'Bytes', color: 'teal.6' }]}
        />
        <Note left={left} />
      </Card>
    </SimpleGrid>
  );
}

function Note({ left }: { left: number }) {
  return <Dimmed>{left > 0 ? `The ${maxBars} largest; ${left} more are in the table.` : ' '}</Dimmed>;
}

const short = (value: number) => Intl.NumberFormat(undefined, { notation: 'compact' }).format(value);
const shortened = (name: string) => (name.length > 15 ? `${name.slice(0, 14)}…` : name);
