import { BarChart, LineChart } from '@mantine/charts';
import { Box, SimpleGrid } from '@mantine/core';
import '@mantine/charts/styles.css';
import { duration } from './OperationsTable.tsx';
import type { Point } from './queries.ts';

/** The number of operations and of failures, and the durations, side by side if the width allows it. */
export function ActivityCharts({ points, stepS }: { points: Point[]; stepS: number }) {
  const at = new Intl.DateTimeFormat(undefined, {
    ...(stepS >= 21_600 && { month: 'short', day: 'numeric' }),
    // Steps of a day are days of UTC.
    ...(stepS < 86_400 ? { hour: '2-digit', minute: '2-digit' } : { timeZone: 'UTC' }),
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
    xAxisProps: { minTickGap: 24, interval: 'equidistantPreserveStart', padding: { left: 8, right: 8 } },
  } as const;
  return (
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
            { name: 'p50', label: 'Median duration', color: 'trellis.5' },
            { name: 'p95', label: '95th percentile', color: 'orange.6' },
          ]}
        />
      </Box>
    </SimpleGrid>
  );
}
