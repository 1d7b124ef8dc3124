import { ActionIcon, Badge, Group, Menu, Table, Text } from '@mantine/core';
import { IconDots, IconKey, IconTrash, IconUserCog } from '@tabler/icons-react';
import { useSuspenseQuery } from '@tanstack/react-query';
import { RelativeTime } from '../../../ui/RelativeTime.tsx';
import { meQuery } from '../../sign-in/queries.ts';
import type { User } from './queries.ts';

export function UsersTable({
  users,
  onRole,
  onReset,
  onRemove,
}: {
  users: User[];
  onRole: (user: User) => void;
  onReset: (user: User) => void;
  onRemove: (user: User) => void;
}) {
  const { data: me } = useSuspenseQuery(meQuery());
  return (
    <Table.ScrollContainer minWidth={300} className="framed">
      <Table verticalSpacing="sm" horizontalSpacing="md">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Who</Table.Th>
            <Table.Th>Role</Table.Th>
            <Table.Th visibleFrom="sm">Second factor</Table.Th>
            <Table.Th visibleFrom="md">Last sign-in</Table.Th>
            <Table.Th w={50} aria-label="Acts" />
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {users.map((user) => (
            <Table.Tr key={user.id}>
              <Table.Td>
                <Group gap={6}>
                  <Text size="sm" fw={550} className="wrap">
                    {user.name}
                  </Text>
                  {user.id === me.id && <Badge color="gray">you</Badge>}
                </Group>
                <Text size="xs" c="dimmed" className="wrap">
                  {user.email}
                </Text>
              </Table.Td>
              <Table.Td>
                <Rights user={user} />
              </Table.Td>
              <Table.Td visibleFrom="sm">
                <Badge color={user.two_factor ? 'green' : 'gray'}>{user.two_factor ? 'on' : 'off'}</Badge>
              </Table.Td>
              <Table.Td visibleFrom="md">
                <RelativeTime at={user.last_signed_in_at} size="sm" />
              </Table.Td>
              <Table.Td>
                <Menu position="bottom-end" width={190}>
                  <Menu.Target>
                    <ActionIcon variant="subtle" color="gray" aria-label={`Acts on ${user.name}`}>
                      <IconDots size={18} />
                    </ActionIcon>
                  </Menu.Target>
                  <Menu.Dropdown>
                    <Menu.Item leftSection={<IconUserCog size={16} />} onClick={() => onRole(user)}>
                      Change the role
                    </Menu.Item>
                    <Menu.Item leftSection={<IconKey size={16} />} onClick={() => onReset(user)}>
                      Make a reset link
                    </Menu.Item>
                    <Menu.Divider />
                    <Menu.Item
                      color="red"
                      leftSection={<IconTrash size={16} />}
                      onClick={() => onRemove(user)}
                    >
                      Remove
                    </Menu.Item>
                  </Menu.Dropdown>
                </Menu>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function Rights({ user: { role, environments } }: { user: User }) {
  if (role === null) {
    return (
      <Text size="sm" c="dimmed">
        none
      </Text>
    );
  }
  return (
    <Group gap={4}>
      <Badge color={role === 'owner' ? 'violet' : role === 'developer' ? 'blue' : 'gray'}>{role}</Badge>
      {role !== 'owner' && (
        <Text size="xs" c="dimmed" className="wrap">
          in {environments.map(({ environment }) => environment).join(', ')}
        </Text>
      )}
    </Group>
  );
}
