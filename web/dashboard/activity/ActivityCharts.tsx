import { SimpleGrid } from '@mantine/core';
import { TimeChart } from '../../ui/TimeChart.tsx';
import { duration } from './OperationsTable.tsx';
import type { Point } from './queries.ts';

/** The number of operations and of failures, and the durations, side by side if the width allows it. */
export function ActivityCharts({ points, stepS }: { points: Point[]; stepS: number }) {
  const at = new Intl.DateTimeFormat(undefined, {
    ...(stepS >= 21_600 && { month: 'short', day: 'numeric' }),
    // Steps of a day are days of UTC.
    ...(stepS < 86_400 ? { hour: '2-digit', minute: '2-digit' } : { timeZone: 'UTC' }),
  });
  const names = points.map((point) => at.format(new Date(point.at)));
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
      <TimeChart
        label="The number of operations and of failures over time."
        names={names}
        isStacked
        format={(value) => value.toLocaleString()}
        series={[
          { name: 'Succeeded', color: 'teal.6', values: points.map(({ count, failed }) => count - failed) },
          { name: 'Failed', color: 'red.6', values: points.map(({ failed }) => failed) },
        ]}
      />
      <TimeChart
        label="The durations p50 (median) and p95 over time."
        names={names}
        format={duration}
        series={[
          { name: 'p50 (median)', color: 'trellis.5', values: points.map(({ p50_ms }) => p50_ms) },
          { name: 'p95', color: 'orange.6', values: points.map(({ p95_ms }) => p95_ms) },
        ]}
      />
    </SimpleGrid>
  );
}
