import { Card, SimpleGrid, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { TimeChart } from '../../ui/TimeChart.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { type Run, runsQuery } from './queries.ts';
import { formatDuration } from './words.ts';

const maxRuns = 20;
const dayMs = 86_400_000;

/** The durations of the last runs of the same sync, and the records that they changed. Nothing before its second run. */
export function RunTrend({ run }: { run: Run }) {
  const environment = useEnvironment();
  const { integration_id: integration, connection_id: connection, function: name, kind, variant } = run;
  const { data } = useQuery({
    ...runsQuery(environment, {
      integration_id: integration,
      connection_id: connection ?? '',
      function: name,
      kind,
      limit: 100,
    }),
    enabled: connection !== null,
  });
  const runs = (data?.runs ?? [])
    .filter((one) => one.variant === variant && one.started_at !== null && one.ended_at !== null)
    .slice(0, maxRuns)
    .reverse();
  if (runs.length < 2) return null;
  const times = runs.map(({ started_at: at }) => Date.parse(at!));
  const isOfDays = times.at(-1)! - times[0]! > dayMs;
  const format = new Intl.DateTimeFormat(
    undefined,
    isOfDays ? { month: 'short', day: 'numeric' } : { hour: '2-digit', minute: '2-digit' },
  );
  const names = times.map((at) => format.format(at));
  const changes = (change: 'added' | 'updated' | 'deleted') =>
    runs.map(({ counts }) => Object.values(counts).reduce((sum, one) => sum + one[change], 0));
  return (
    <Card component="section" aria-label="Last runs">
      <Title order={2}>Last {runs.length} runs</Title>
      <SimpleGrid cols={{ base: 1, md: kind === 'action' ? 1 : 2 }} spacing="lg">
        <TimeChart
          label="The duration of the last runs."
          names={names}
          format={formatDuration}
          series={[
            {
              name: 'Duration',
              color: 'trellis.5',
              values: runs.map(({ started_at: at, ended_at: end }) => Date.parse(end!) - Date.parse(at!)),
            },
          ]}
        />
        {kind !== 'action' && (
          <TimeChart
            label="The records that the last runs changed."
            names={names}
            isStacked
            format={(count) => count.toLocaleString()}
            series={[
              { name: 'Added', color: 'teal.6', values: changes('added') },
              { name: 'Updated', color: 'trellis.5', values: changes('updated') },
              { name: 'Deleted', color: 'red.6', values: changes('deleted') },
            ]}
          />
        )}
      </SimpleGrid>
    </Card>
  );
}
