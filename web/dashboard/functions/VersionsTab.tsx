import { Badge, Button, Group, Stack, Table, Text, VisuallyHidden } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Confirm } from '../../ui/Confirm.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { Sliced } from '../../ui/Sliced.tsx';
import { FunctionLink } from './FunctionLink.tsx';
import { type FunctionAt, rollBack, type Version, versionsQuery } from './queries.ts';

/** What was deployed and when; any of it may be let run again. */
export function VersionsTab({
  environment,
  at,
  mayWrite,
}: {
  environment: string;
  at: FunctionAt;
  mayWrite: boolean;
}) {
  const queries = useQueryClient();
  const query = useQuery(versionsQuery(environment, at));
  const [chosen, setChosen] = useState<Version>();
  const back = useMutation({
    mutationFn: ({ version }: Version) => rollBack(environment, { ...at, version }),
    onSuccess: (_, { version }) =>
      notifications.show({ message: `Version ${version} runs from now on.`, color: 'green' }),
    onSettled: () => queries.invalidateQueries({ queryKey: [environment, 'functions'] }),
  });
  return (
    <>
      <Loaded query={query}>
        {(versions) => (
          <Sliced items={versions} size={50}>
            {(shown) => (
              <Table.ScrollContainer minWidth={300} className="framed">
                <Table verticalSpacing="sm" horizontalSpacing="md">
                  <Table.Thead>
                    <Table.Tr>
                      <Table.Th>Version</Table.Th>
                      <Table.Th>Deployed</Table.Th>
                      <Table.Th visibleFrom="sm">By</Table.Th>
                      <Table.Th>
                        <VisuallyHidden>Acts</VisuallyHidden>
                      </Table.Th>
                    </Table.Tr>
                  </Table.Thead>
                  <Table.Tbody>
                    {shown.map((one) => (
                      <Table.Tr key={one.version}>
                        <Table.Td>
                          <Group gap={8}>
                            <Text span fw={550} size="sm">
                              {one.version}
                            </Text>
                            {one.version_label !== '0.0.1' && (
                              <Text span size="sm" c="dimmed" className="wrap">
                                {one.version_label}
                              </Text>
                            )}
                            {one.current && <Badge color="green">Runs</Badge>}
                          </Group>
                        </Table.Td>
                        <Table.Td>
                          <RelativeTime at={one.deployed_at} size="sm" />
                        </Table.Td>
                        <Table.Td visibleFrom="sm" className="wrap">
                          {one.deployed_by}
                        </Table.Td>
                        <Table.Td>
                          <Group gap="xs" justify="flex-end">
                            <Button
                              size="compact-sm"
                              variant="default"
                              aria-label={`Code of version ${one.version}`}
                              renderRoot={(looks) => (
                                <FunctionLink
                                  environment={environment}
                                  at={at}
                                  search={{ tab: 'code', ...(!one.current && { version: one.version }) }}
                                  {...looks}
                                />
                              )}
                            >
                              Code
                            </Button>
                            {mayWrite && !one.current && (
                              <Button
                                size="compact-sm"
                                variant="light"
                                aria-label={`Let it run: version ${one.version}`}
                                onClick={() => setChosen(one)}
                              >
                                Let it run
                              </Button>
                            )}
                          </Group>
                        </Table.Td>
                      </Table.Tr>
                    ))}
                  </Table.Tbody>
                </Table>
              </Table.ScrollContainer>
            )}
          </Sliced>
        )}
      </Loaded>
      <Confirm
        title={`Let version ${chosen?.version ?? ''} run?`}
        act="Let it run"
        given={chosen}
        mutation={back}
        onClose={() => setChosen(undefined)}
      >
        <Stack gap="xs">
          <Text>
            New runs use its code, its models and its frequency. Runs under way end with the version they
            began with.
          </Text>
          <Text size="sm" c="dimmed">
            The next deploy puts the newest code in its place again.
          </Text>
        </Stack>
      </Confirm>
    </>
  );
}
