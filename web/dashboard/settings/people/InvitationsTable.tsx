import { Button, Table, Text } from '@mantine/core';
import { RelativeTime } from '../../../ui/RelativeTime.tsx';
import type { Invitation } from './queries.ts';

export function InvitationsTable({
  invitations,
  onTakeBack,
}: {
  invitations: Invitation[];
  onTakeBack: (id: number) => void;
}) {
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
          {invitations.map(({ id, email, role, environments, created_at: madeAt, expires_at: endsAt }) => (
            <Table.Tr key={id}>
              <Table.Td>
                <Text size="sm" className="wrap">
                  {email ?? 'whoever has the link'}
                </Text>
                <Text size="xs" c="dimmed" className="wrap">
                  {role}
                  {environments.length > 0 && ` in ${environments.join(', ')}`}
                </Text>
              </Table.Td>
              <Table.Td visibleFrom="sm">
                <RelativeTime at={madeAt} size="sm" />
              </Table.Td>
              <Table.Td>
                <RelativeTime at={endsAt} size="sm" />
              </Table.Td>
              <Table.Td>
                <Button variant="default" size="compact-sm" onClick={() => onTakeBack(id)}>
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
