import {
  ActionIcon,
  Alert,
  Badge,
  Button,
  Checkbox,
  Code,
  Group,
  Menu,
  Radio,
  Stack,
  Text,
  TextInput,
  Title,
} from '@mantine/core';
import { useQuery, useSuspenseQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Confirm } from '../../../ui/Confirm.tsx';
import { CopyButton } from '../../../ui/CopyButton.tsx';
import { Dialog, DialogEnd, FormDialog } from '../../../ui/Dialog.tsx';
import { Dimmed } from '../../../ui/Dimmed.tsx';
import { IconDots, IconKey, IconTrash, IconUserCog, IconUserPlus } from '../../../ui/icons.tsx';
import { ListTable } from '../../../ui/ListTable.tsx';
import { Loaded } from '../../../ui/Loaded.tsx';
import { RelativeTime } from '../../../ui/RelativeTime.tsx';
import { Sliced } from '../../../ui/Sliced.tsx';
import { useEnvironment } from '../../shell/environment.ts';
import { rules } from '../../sign-in/fields.tsx';
import { meQuery } from '../../sign-in/queries.ts';
import { useChange } from '../../use-change.ts';
import {
  changeRole,
  type Grant,
  type Invitation,
  invitationsQuery,
  invite,
  newResetLink,
  type Role,
  removeUser,
  takeBack,
  type User,
  usersQuery,
} from './queries.ts';

export function PeopleTab() {
  const users = useQuery(usersQuery());
  const invitations = useQuery(invitationsQuery());
  const [invites, setInvites] = useState(false);
  const [changed, setChanged] = useState<User>();
  const [removed, setRemoved] = useState<User>();
  const remove = useChange(({ id }: User) => removeUser(id), { stale: [['users']] });
  const reset = useChange(({ id }: User) => newResetLink(id), { failed: 'Not done' });
  const back = useChange(takeBack, { stale: [['invitations']], failed: 'Not done' });
  return (
    <Stack gap="lg">
      <Stack>
        <Group justify="space-between">
          <Dimmed flex="1 1 260px" maw={680}>
            The users who can sign in. Keys of a removed user remain valid.
          </Dimmed>
          <Button leftSection={<IconUserPlus size={16} />} onClick={() => setInvites(true)}>
            Invite a user
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
        <Title order={2}>Open invitations</Title>
        <Loaded query={invitations}>
          {(all) =>
            all.length === 0 ? (
              <Dimmed>None.</Dimmed>
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
      <Dialog
        opened={reset.data !== undefined}
        onClose={reset.reset}
        closeOnClickOutside={false}
        title={`A new password for ${reset.variables?.name ?? ''}`}
      >
        {reset.data !== undefined && (
          <LinkStep
            link={reset.data.link}
            expiresAt={reset.data.expires_at}
            isMailed={'mailed' in reset.data && reset.data.mailed === true}
            onDone={reset.reset}
          />
        )}
      </Dialog>
      <Confirm
        title="Remove this user?"
        act="Remove"
        given={removed}
        mutation={remove}
        onClose={() => setRemoved(undefined)}
      >
        <Text className="wrap">
          <b>{removed?.name}</b> ({removed?.email}) is signed out everywhere immediately, and their open
          invitations are revoked. Their keys remain valid.
        </Text>
      </Confirm>
    </Stack>
  );
}

function UsersTable({
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
    <ListTable
      rows={users}
      keyOf={(user) => user.id}
      columns={[
        {
          title: 'Who',
          cell: (user) => (
            <>
              <Group gap={6}>
                <Text size="sm" fw={550} className="wrap">
                  {user.name}
                </Text>
                {user.id === me.id && <Badge color="gray">you</Badge>}
              </Group>
              <Text size="xs" c="dimmed" className="wrap">
                {user.email}
              </Text>
            </>
          ),
        },
        { title: 'Role', cell: (user) => <Rights user={user} /> },
        {
          title: 'Two-factor',
          visibleFrom: 'sm',
          cell: (user) => (
            <Badge color={user.two_factor ? 'green' : 'gray'}>{user.two_factor ? 'on' : 'off'}</Badge>
          ),
        },
        {
          title: 'Last sign-in',
          visibleFrom: 'md',
          cell: (user) => <RelativeTime at={user.last_signed_in_at} size="sm" />,
        },
        {
          label: 'Actions',
          heading: { w: 50 },
          cell: (user) => (
            <Menu position="bottom-end" width={190}>
              <Menu.Target>
                <ActionIcon variant="subtle" color="gray" aria-label={`Actions for ${user.name}`}>
                  <IconDots size={18} />
                </ActionIcon>
              </Menu.Target>
              <Menu.Dropdown>
                <Menu.Item leftSection={<IconUserCog size={16} />} onClick={() => onRole(user)}>
                  Change the role
                </Menu.Item>
                <Menu.Item leftSection={<IconKey size={16} />} onClick={() => onReset(user)}>
                  Create a reset link
                </Menu.Item>
                <Menu.Divider />
                <Menu.Item color="red" leftSection={<IconTrash size={16} />} onClick={() => onRemove(user)}>
                  Remove
                </Menu.Item>
              </Menu.Dropdown>
            </Menu>
          ),
        },
      ]}
    />
  );
}

function Rights({ user: { role, environments } }: { user: User }) {
  if (role === null) {
    return <Dimmed>none</Dimmed>;
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

function InvitationsTable({
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
    <ListTable
      rows={invitations}
      keyOf={(invitation) => invitation.id}
      columns={[
        {
          title: 'For',
          cell: (invitation) => (
            <>
              <Text size="sm" className="wrap">
                {invitation.email ?? 'anyone with the link'}
              </Text>
              <Text size="xs" c="dimmed" className="wrap">
                {invitation.role}
                {invitation.environments.length > 0 && ` in ${invitation.environments.join(', ')}`}, by{' '}
                {makerOf(invitation)}
              </Text>
            </>
          ),
        },
        {
          title: 'Created',
          visibleFrom: 'sm',
          cell: (invitation) => <RelativeTime at={invitation.created_at} size="sm" />,
        },
        { title: 'Expires', cell: (invitation) => <RelativeTime at={invitation.expires_at} size="sm" /> },
        {
          label: 'Actions',
          heading: { w: 110 },
          cell: (invitation) => (
            <Button variant="default" size="compact-sm" onClick={() => onTakeBack(invitation.id)}>
              Revoke
            </Button>
          ),
        },
      ]}
    />
  );
}

/** Invites a user with a link. */
function InviteDialog({ onClose }: { onClose: () => void }) {
  const environment = useEnvironment();
  const [grant, setGrant] = useState<Grant>({ role: 'viewer', environments: [environment] });
  const [email, setEmail] = useState('');
  const problem = email.trim() === '' ? null : rules.email(email.trim());
  const make = useChange(() => invite({ ...grant, email: email.trim() }), { stale: [['invitations']] });
  return (
    <Dialog opened onClose={onClose} closeOnClickOutside={make.data === undefined} title="Invite a user">
      {make.data !== undefined ? (
        <LinkStep
          link={make.data.link}
          expiresAt={make.data.expires_at}
          isMailed={isMailed(make.data)}
          onDone={onClose}
        />
      ) : (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            make.mutate();
          }}
        >
          <Stack>
            <GrantFields value={grant} onChange={setGrant} />
            <TextInput
              label="E-mail"
              description="With an address, the link only creates a user with this address. Without an address, the person who opens the link enters one."
              type="email"
              value={email}
              error={problem}
              onChange={({ currentTarget }) => setEmail(currentTarget.value)}
            />
            <DialogEnd
              act="Create the link"
              attempt={make}
              button={{ disabled: !isWhole(grant) || problem !== null }}
              onClose={onClose}
            />
          </Stack>
        </form>
      )}
    </Dialog>
  );
}

function isMailed(made: object): boolean {
  return 'mailed' in made && made.mailed === true;
}

const roles: { role: Role; label: string; about: string }[] = [
  {
    role: 'viewer',
    label: 'Viewer',
    about: 'Reads everything except credentials, signing keys and values of variables',
  },
  {
    role: 'developer',
    label: 'Developer',
    about: 'Reads and changes everything in the environment, and creates keys',
  },
  {
    role: 'owner',
    label: 'Owner',
    about: 'Reads and changes everything, and manages users and environments',
  },
];

/** A role and, except for owners, its environments. */
function GrantFields({ value, onChange }: { value: Grant; onChange: (grant: Grant) => void }) {
  const { data: me } = useSuspenseQuery(meQuery());
  return (
    <Stack>
      <Radio.Group
        label="Role"
        value={value.role}
        onChange={(role) => onChange({ ...value, role: role as Role })}
      >
        <Stack gap="xs" mt={6}>
          {roles.map(({ role, label, about }) => (
            <Radio key={role} value={role} label={label} description={about} />
          ))}
        </Stack>
      </Radio.Group>
      {value.role !== 'owner' && (
        <Checkbox.Group
          label="Environments"
          value={value.environments}
          error={value.environments.length === 0 && 'Choose at least one.'}
          onChange={(environments) => onChange({ ...value, environments })}
        >
          <Group gap="md" my={6}>
            {me.environments.map(({ name }) => (
              <Checkbox key={name} value={name} label={name} />
            ))}
          </Group>
        </Checkbox.Group>
      )}
    </Stack>
  );
}

export const isWhole = ({ role, environments }: Grant): boolean =>
  role === 'owner' || environments.length > 0;

/** A link for another user, which is shown only once. */
function LinkStep({
  link,
  expiresAt,
  isMailed,
  onDone,
}: {
  link: string;
  expiresAt: string;
  isMailed: boolean;
  onDone: () => void;
}) {
  return (
    <Stack>
      <Alert
        color={isMailed ? 'green' : 'yellow'}
        title={isMailed ? 'The link was sent by e-mail' : 'Send this link now'}
      >
        <Text size="sm">
          The link is shown only once. It is valid for one use and expires <RelativeTime at={expiresAt} />.
        </Text>
      </Alert>
      <Code block tabIndex={0} className="broken" data-testid="link">
        {link}
      </Code>
      <Group justify="flex-end">
        <CopyButton value={link} what="the link" label="Copy" />
        <Button onClick={onDone}>Done</Button>
      </Group>
    </Stack>
  );
}

/** Changes the role of a user. */
function RoleDialog({ user, onClose }: { user: User; onClose: () => void }) {
  const [grant, setGrant] = useState<Grant>({
    role: user.role ?? 'viewer',
    environments: user.role === 'owner' ? [] : user.environments.map(({ environment }) => environment),
  });
  const save = useChange(() => changeRole({ id: user.id, ...grant }), {
    stale: [['users'], ['me']],
    after: onClose,
  });
  return (
    <FormDialog
      title={`The role of ${user.name}`}
      act="Save"
      attempt={save}
      button={{ disabled: !isWhole(grant) }}
      onClose={onClose}
      onSubmit={(event) => {
        event?.preventDefault();
        save.mutate();
      }}
    >
      <GrantFields value={grant} onChange={setGrant} />
    </FormDialog>
  );
}
