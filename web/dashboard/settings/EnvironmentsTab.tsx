import { ActionIcon, Anchor, Badge, Button, Group, Menu, Stack, Table, Text } from '@mantine/core';
import { IconDots, IconPencil, IconPlus, IconTrash } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { Loaded } from '../../ui/Loaded.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { DeleteEnvironment } from './DeleteEnvironment.tsx';
import { EnvironmentDialog } from './EnvironmentDialog.tsx';
import { environmentsQuery } from './queries.ts';

/** Those that each start makes where they are missing. */
const lasting = ['dev', 'prod'];

export function EnvironmentsTab() {
  const current = useEnvironment();
  const query = useQuery(environmentsQuery());
  const [opened, setOpened] = useState<{ act: 'create' } | { act: 'rename' | 'delete'; name: string }>();
  const close = () => setOpened(undefined);
  return (
    <Stack>
      <Group justify="space-between">
        <Text size="sm" c="dimmed" flex="1 1 260px" maw={680}>
          Each has keys, integrations, connections and settings of its own, and sees nothing of the others.
        </Text>
        <Button leftSection={<IconPlus size={16} />} onClick={() => setOpened({ act: 'create' })}>
          Create an environment
        </Button>
      </Group>
      <Loaded query={query}>
        {(environments) => (
          <Table.ScrollContainer minWidth={300} className="framed">
            <Table verticalSpacing="sm" horizontalSpacing="md">
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>Name</Table.Th>
                  <Table.Th>Created</Table.Th>
                  <Table.Th w={50} aria-label="Acts" />
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {environments.map(({ name, created_at: createdAt }) => (
                  <Table.Tr key={name}>
                    <Table.Td>
                      <Group gap={6}>
                        <Anchor
                          size="sm"
                          fw={550}
                          className="wrap"
                          renderRoot={(props) => (
                            <Link
                              to="/$environment/getting-started"
                              params={{ environment: name }}
                              {...props}
                            />
                          )}
                        >
                          {name}
                        </Anchor>
                        {name === current && <Badge color="gray">open now</Badge>}
                      </Group>
                    </Table.Td>
                    <Table.Td>
                      <RelativeTime at={createdAt} size="sm" />
                    </Table.Td>
                    <Table.Td>
                      {lasting.includes(name) ? (
                        <Text size="xs" c="dimmed">
                          stays
                        </Text>
                      ) : (
                        <Menu position="bottom-end" width={150}>
                          <Menu.Target>
                            <ActionIcon variant="subtle" color="gray" aria-label={`Acts on ${name}`}>
                              <IconDots size={18} />
                            </ActionIcon>
                          </Menu.Target>
                          <Menu.Dropdown>
                            <Menu.Item
                              leftSection={<IconPencil size={16} />}
                              onClick={() => setOpened({ act: 'rename', name })}
                            >
                              Rename
                            </Menu.Item>
                            <Menu.Item
                              color="red"
                              leftSection={<IconTrash size={16} />}
                              onClick={() => setOpened({ act: 'delete', name })}
                            >
                              Delete
                            </Menu.Item>
                          </Menu.Dropdown>
                        </Menu>
                      )}
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Table.ScrollContainer>
        )}
      </Loaded>
      {(opened?.act === 'create' || opened?.act === 'rename') && (
        <EnvironmentDialog former={opened.act === 'rename' ? opened.name : undefined} onClose={close} />
      )}
      {opened?.act === 'delete' && <DeleteEnvironment name={opened.name} onClose={close} />}
    </Stack>
  );
}
