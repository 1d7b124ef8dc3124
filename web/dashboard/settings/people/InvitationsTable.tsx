import { Button, Table, Text } from '@mantine/core';
import { RelativeTime } from '../../../ui/RelativeTime.tsx';
import type { Invitation, User } from './queries.ts';

export function InvitationsTable({
  invitations,
  users,
  onTakeBack,
}: {
  invitations: Invitation[];
  users: User[];
  onTakeBack: (id: number) => void;
}) {
  const makerOf = ({ created_by: by }: Invitation) =>
    by === null ? 'the command line' : (users.find(({ id }) => id === by)?.name ?? 'an owner');
  return (
    <Table.ScrollContainer minWidth={300} className="framed">
      <Table verticalSpacing="sm" horizontalSpacing="md">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>For</Table.Th>
            <Table.Th visibleFrom="sm">Made</Table.Th>
            <Table.Th>Ends</Table.Th>
            <Table.Th w={110} aria-label="Acts" />
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {invitations.map((invitation) => (
            <Table.Tr key={invitation.id}>
              <Table.Td>
                <Text size="sm" className="wrap">
                  {invitation.email ?? 'anyone with the link'}
                </Text>
                <Text size="xs" c="dimmed" className="wrap">
                  {invitation.role}
                  {invitation.environments.length > 0 && ` in ${invitation.environments.join(', ')}`}, by{' '}
                  {makerOf(invitation)}
                </Text>
              </Table.Td>
              <Table.Td visibleFrom="sm">
                <RelativeTime at={invitation.created_at} size="sm" />
              </Table.Td>
              <Table.Td>
                <RelativeTime at={invitation.expires_at} size="sm" />
              </Table.Td>
              <Table.Td>
                <Button variant="default" size="compact-sm" onClick={() => onTakeBack(invitation.id)}>
                  Take back
                </Button>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}
