import { BarChart } from '@mantine/charts';
import '@mantine/charts/styles.css';

type Hour = { hour: string; status: string; count: number };

/** Operations by the hour over the last day, failed ones on top. */
export function ActivityChart({ hours, nowMs }: { hours: Hour[]; nowMs: number }) {
  const current = Math.floor(nowMs / 3_600_000);
  const data = Array.from({ length: 24 }, (_, index) => {
    const start = (current - 23 + index) * 3_600_000;
    const own = hours.filter(({ hour }) => Math.floor(Date.parse(hour) / 3_600_000) * 3_600_000 === start);
    const countOf = (isGood: boolean) =>
      own
        .filter(({ status }) => (status === 'success') === isGood)
        .reduce((sum, { count }) => sum + count, 0);
    return {
      hour: new Date(start).toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit' }),
      Succeeded: countOf(true),
      Failed: countOf(false),
    };
  });
  return (
    <BarChart
      h={160}
      data={data}
      dataKey="hour"
      type="stacked"
      withLegend
      legendProps={{ verticalAlign: 'top', height: 32 }}
      tickLine="none"
      gridAxis="x"
      maxBarWidth={28}
      valueFormatter={(value) => value.toLocaleString()}
      series={[
        { name: 'Succeeded', color: 'teal.6' },
        { name: 'Failed', color: 'red.6' },
      ]}
    />
  );
}
