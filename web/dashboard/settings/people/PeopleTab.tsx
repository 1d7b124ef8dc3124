import { Button, Group, Modal, Stack, Text, Title } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { IconUserPlus } from '@tabler/icons-react';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Confirm } from '../../../ui/Confirm.tsx';
import { Loaded } from '../../../ui/Loaded.tsx';
import { Sliced } from '../../../ui/Sliced.tsx';
import { InvitationsTable } from './InvitationsTable.tsx';
import { InviteDialog } from './InviteDialog.tsx';
import { LinkStep } from './LinkStep.tsx';
import { invitationsQuery, newResetLink, removeUser, takeBack, type User, usersQuery } from './queries.ts';
import { RoleDialog } from './RoleDialog.tsx';
import { UsersTable } from './UsersTable.tsx';

export function PeopleTab() {
  const queries = useQueryClient();
  const users = useQuery(usersQuery());
  const invitations = useQuery(invitationsQuery());
  const [invites, setInvites] = useState(false);
  const [changed, setChanged] = useState<User>();
  const [removed, setRemoved] = useState<User>();
  const refused = ({ message }: Error) => notifications.show({ title: 'Not done', message, color: 'red' });
  const remove = useMutation({
    mutationFn: ({ id }: User) => removeUser(id),
    onSuccess: () => queries.invalidateQueries({ queryKey: ['users'] }),
  });
  const reset = useMutation({ mutationFn: ({ id }: User) => newResetLink(id), onError: refused });
  const back = useMutation({
    mutationFn: takeBack,
    onSettled: () => queries.invalidateQueries({ queryKey: ['invitations'] }),
    onError: refused,
  });
  return (
    <Stack gap="lg">
      <Stack>
        <Group justify="space-between">
          <Text size="sm" c="dimmed" flex="1 1 260px" maw={680}>
            Who can sign in here. Keys that somebody made stay when they go.
          </Text>
          <Button leftSection={<IconUserPlus size={16} />} onClick={() => setInvites(true)}>
            Invite somebody
          </Button>
        </Group>
        <Loaded query={users}>
          {(all) => (
            <Sliced items={all}>
              {(shown) => (
                <UsersTable users={shown} onRole={setChanged} onReset={reset.mutate} onRemove={setRemoved} />
              )}
            </Sliced>
          )}
        </Loaded>
      </Stack>
      <Stack gap="xs">
        <Title order={2}>Invitations that wait</Title>
        <Loaded query={invitations}>
          {(all) =>
            all.length === 0 ? (
              <Text size="sm" c="dimmed">
                None.
              </Text>
            ) : (
              <Sliced items={all}>
                {(shown) => (
                  <InvitationsTable invitations={shown} users={users.data ?? []} onTakeBack={back.mutate} />
                )}
              </Sliced>
            )
          }
        </Loaded>
      </Stack>
      {invites && <InviteDialog onClose={() => setInvites(false)} />}
      {changed !== undefined && <RoleDialog user={changed} onClose={() => setChanged(undefined)} />}
      <Modal
        opened={reset.data !== undefined}
        onClose={reset.reset}
        closeOnClickOutside={false}
        title={`A new password for ${reset.variables?.name ?? ''}`}
        closeButtonProps={{ 'aria-label': 'Close' }}
      >
        {reset.data !== undefined && (
          <LinkStep
            link={reset.data.link}
            expiresAt={reset.data.expires_at}
            isMailed={'mailed' in reset.data && reset.data.mailed === true}
            onDone={reset.reset}
          />
        )}
      </Modal>
      <Confirm
        title="Remove this user?"
        act="Remove"
        given={removed}
        mutation={remove}
        onClose={() => setRemoved(undefined)}
      >
        <Text className="wrap">
          <b>{removed?.name}</b> ({removed?.email}) is signed out everywhere at once, and the invitations that
          they made end. Keys that they made stay.
        </Text>
      </Confirm>
    </Stack>
  );
}
