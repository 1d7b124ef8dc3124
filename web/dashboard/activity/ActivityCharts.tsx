import { BarChart, LineChart } from '@mantine/charts';
import { Box, SimpleGrid } from '@mantine/core';
import { Dimmed } from '../../ui/Dimmed.tsx';
import '@mantine/charts/styles.css';
import { duration } from './OperationsTable.tsx';
import type { Point } from './queries.ts';

/** The number of operations and of failures, and the durations, side by side if the width allows it. */
export function ActivityCharts({ points, stepS }: { points: Point[]; stepS: number }) {
  const at = new Intl.DateTimeFormat(undefined, {
    ...(stepS >= 21_600 && { month: 'short', day: 'numeric' }),
    ...(stepS < 86_400 && { hour: '2-digit', minute: '2-digit' }),
  });
  const data = points.map((point) => ({
    at: at.format(new Date(point.at)),
    Succeeded: point.count - point.failed,
    Failed: point.failed,
    p50: point.p50_ms,
    p95: point.p95_ms,
  }));
  const shared = {
    h: 170,
    data,
    dataKey: 'at',
    withLegend: true,
    legendProps: { verticalAlign: 'top', height: 32 },
    tickLine: 'none',
    gridAxis: 'x',
    xAxisProps: { minTickGap: 24 },
  } as const;
  const isAtLeast = points.some((point) => point.at_least);
  return (
    <>
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
        <Box role="img" aria-label="The number of operations and of failures over time.">
          <BarChart
            {...shared}
            type="stacked"
            maxBarWidth={20}
            yAxisProps={{ allowDecimals: false }}
            valueFormatter={(value) => value.toLocaleString()}
            series={[
              { name: 'Succeeded', color: 'teal.6' },
              { name: 'Failed', color: 'red.6' },
            ]}
          />
        </Box>
        <Box role="img" aria-label="The 50th and 95th percentile of the duration over time.">
          <LineChart
            {...shared}
            curveType="linear"
            connectNulls={false}
            dotProps={{ r: 2 }}
            strokeWidth={2}
            valueFormatter={duration}
            series={[
              { name: 'p50', label: 'Took, p50', color: 'trellis.5' },
              { name: 'p95', label: 'Took, p95', color: 'orange.6' },
            ]}
          />
        </Box>
      </SimpleGrid>
      <Dimmed mt="xs">
        {isAtLeast
          ? 'Too many operations match to count all of them. The numbers are lower bounds, from the newest operations of each step. A shorter time range gives better numbers. p50 and p95 use the same operations.'
          : 'Counts are exact. p50 and p95 may differ by up to 12%.'}
      </Dimmed>
    </>
  );
}
