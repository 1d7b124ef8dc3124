import { Card, Table, Text, Title } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { isOver, type Run } from './queries.ts';

const changes = ['added', 'updated', 'deleted', 'unchanged'] as const;

/** What a run did to records, model by model. */
export function ChangesCard({ environment, run }: { environment: string; run: Run }) {
  const models = Object.entries(run.counts);
  const { connection_id: id, provider_config_key: integration, variant } = run;
  return (
    <Card component="section" aria-label="Records">
      <Title order={2} mb="xs">
        Records
      </Title>
      {models.length === 0 ? (
        <Text size="sm" c="dimmed">
          {isOver(run) ? 'It saved nothing.' : 'It has saved nothing so far.'}
        </Text>
      ) : (
        <Table.ScrollContainer minWidth={280}>
          <Table verticalSpacing={6}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Model</Table.Th>
                {changes.map((name) => (
                  <Table.Th key={name} ta="right" tt="capitalize">
                    {name}
                  </Table.Th>
                ))}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {models.map(([model, counts]) => (
                <Table.Tr key={model} className="fill-row">
                  <Table.Td className="wrap">
                    {id === null ? (
                      model
                    ) : (
                      <Link
                        className="fill-link"
                        to="/$environment/records/of/$integration/$id/$model"
                        params={{ environment, integration, id, model }}
                        search={{ variant: variant === 'base' ? undefined : variant }}
                      >
                        <Text span size="sm" fw={550}>
                          {model}
                        </Text>
                      </Link>
                    )}
                  </Table.Td>
                  {changes.map((name) => (
                    <Table.Td key={name} ta="right">
                      {counts[name].toLocaleString()}
                    </Table.Td>
                  ))}
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      )}
    </Card>
  );
}
