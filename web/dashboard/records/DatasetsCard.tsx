import { Badge, Card, Group, Table, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { spellSize } from '../../ui/size.ts';
import { type At, datasetsQuery } from '../connections/queries.ts';
import { AnchorLink } from '../links.tsx';
import { useEnvironment } from '../shell/environment.ts';
import type { Dataset } from './queries.ts';

/** The page behind the link has the other datasets. */
const maxShown = 10;

/** The datasets of a connection, with a link to its records. */
export function DatasetsCard({ at }: { at: At }) {
  const environment = useEnvironment();
  const query = useQuery(datasetsQuery(environment, at));
  return (
    <Card>
      <Group justify="space-between" mb="xs">
        <Title order={2}>Records</Title>
        <AnchorLink size="sm" to="/$environment/records/of/$integration/$id" params={{ environment, ...at }}>
          Records
        </AnchorLink>
      </Group>
      <Loaded query={query}>
        {(datasets) =>
          datasets.length === 0 ? (
            <Dimmed>No records are cached for this connection yet.</Dimmed>
          ) : (
            <Table>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>Dataset</Table.Th>
                  <Table.Th ta="right">Live</Table.Th>
                  <Table.Th ta="right">Payloads</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {datasets.slice(0, maxShown).map((dataset) => (
                  <Table.Tr key={`${dataset.model}:${dataset.variant}`} className="fill-row">
                    <Table.Td>
                      <DatasetLink at={at} dataset={dataset} />
                    </Table.Td>
                    <Table.Td ta="right">{dataset.records.toLocaleString()}</Table.Td>
                    <Table.Td ta="right" className="unbroken">
                      {spellSize(dataset.payload_bytes)}
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
              {datasets.length > maxShown && (
                <Table.Caption>{`and ${(datasets.length - maxShown).toLocaleString()} more`}</Table.Caption>
              )}
            </Table>
          )
        }
      </Loaded>
    </Card>
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
      <Link
        className="fill-link"
        to="/$environment/records/of/$integration/$id/$model"
        params={{ environment, ...at, model }}
        search={{ variant: variant === 'base' ? undefined : variant }}
      >
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
