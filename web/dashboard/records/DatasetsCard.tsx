import { Anchor, Card, Group, Table, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { Loaded } from '../../ui/Loaded.tsx';
import { spellSize } from '../../ui/size.ts';
import { type At, datasetsQuery } from '../connections/queries.ts';
import { DatasetLink } from './DatasetLink.tsx';

/** More are on the page that the card leads to. */
const maxShown = 10;

/** What is kept of a connection, for its own page; leads to the records. */
export function DatasetsCard({ environment, at }: { environment: string; at: At }) {
  const query = useQuery(datasetsQuery(environment, at));
  return (
    <Card>
      <Group justify="space-between" mb="xs">
        <Title order={2}>Records</Title>
        <Anchor
          size="sm"
          renderRoot={(props) => (
            <Link to="/$environment/records/of/$integration/$id" params={{ environment, ...at }} {...props} />
          )}
        >
          Its records
        </Anchor>
      </Group>
      <Loaded query={query}>
        {(datasets) =>
          datasets.length === 0 ? (
            <Text c="dimmed" size="sm">
              Nothing is cached for this connection yet.
            </Text>
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
                      <DatasetLink environment={environment} at={at} dataset={dataset} />
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
