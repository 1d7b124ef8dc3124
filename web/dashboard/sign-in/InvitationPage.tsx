import { Alert, Button, Divider, Stack, Text } from '@mantine/core';
import { useForm } from '@mantine/form';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { Fault } from '../../api/client.ts';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Email, Name, NewPassword, rules } from './fields.tsx';
import { accept, type Invitation, invitationQuery, signInElsewhere, signInWaysQuery } from './queries.ts';
import { SignedOutLayout } from './SignedOutLayout.tsx';
import { useToken } from './token.ts';

/** Makes the account that a link invites to: the first owner's, or that of somebody whom an owner has asked in. */
export function InvitationPage() {
  const token = useToken();
  const query = useQuery({ ...invitationQuery(token), enabled: token !== '' });
  const invitation = query.data;
  // What is no token at all was cut off on its way, mostly by a mail program.
  const isCutOff = token === '' || (query.error instanceof Fault && query.error.status === 400);
  return (
    <SignedOutLayout
      title="Welcome to Trellis"
      about={
        invitation?.kind === 'setup'
          ? 'Make your account. It owns this installation and can invite others.'
          : 'Make your account.'
      }
    >
      {isCutOff ? (
        <Alert color="yellow" title="This address is not complete">
          <Text size="sm">Open the whole link, with everything that follows the #.</Text>
        </Alert>
      ) : (
        <Loaded query={query}>
          {(loaded) => (
            <Stack>
              {loaded.email !== null && <Elsewhere email={loaded.email} />}
              <AccountForm token={token} invitation={loaded} />
            </Stack>
          )}
        </Loaded>
      )}
    </SignedOutLayout>
  );
}

/** Where people sign in at an OpenID provider: that is enough, and no password is made that nobody wants. */
function Elsewhere({ email }: { email: string }) {
  const { data: ways } = useQuery(signInWaysQuery());
  const leave = useMutation({
    mutationFn: () => signInElsewhere('/app'),
    onSuccess: (url) => location.assign(url),
  });
  if (!ways?.oidc) return null;
  return (
    <>
      {leave.isError && <FaultNotice error={leave.error} />}
      <Button loading={leave.isPending} onClick={() => leave.mutate()}>
        Go on with {ways.oidc.name}
      </Button>
      <Text size="sm" c="dimmed">
        Sign in there as {email}; you need no password here.
      </Text>
      <Divider label="or choose a password" />
    </>
  );
}

function AccountForm({ token, invitation }: { token: string; invitation: Invitation }) {
  const navigate = useNavigate();
  const queries = useQueryClient();
  const form = useForm({
    initialValues: { name: '', email: invitation.email ?? '', password: '' },
    validate: { email: rules.email, password: rules.password },
  });
  const make = useMutation({
    mutationFn: accept,
    onSuccess: async () => {
      queries.clear();
      await navigate({ to: '/' });
    },
  });
  return (
    <form onSubmit={form.onSubmit((values) => make.mutate({ ...values, token }))}>
      <Stack>
        {invitation.kind === 'invitation' && (
          <Text size="sm" c="dimmed">
            As {invitation.role}
            {invitation.environments.length > 0 && ` in ${invitation.environments.join(', ')}`}.
          </Text>
        )}
        {make.isError && <FaultNotice error={make.error} />}
        <Name {...form.getInputProps('name')} />
        <Email readOnly={invitation.email !== null} {...form.getInputProps('email')} />
        <NewPassword {...form.getInputProps('password')} />
        <Button type="submit" loading={make.isPending}>
          Make the account
        </Button>
      </Stack>
    </form>
  );
}
