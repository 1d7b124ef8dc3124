import { Alert, Button, Divider, Stack, Text } from '@mantine/core';
import { useForm } from '@mantine/form';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { Fault } from '../../api/client.ts';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { ButtonLink } from '../links.tsx';
import { Email, Name, NewPassword, rules, useToken } from './fields.tsx';
import { accept, type Invitation, invitationQuery, signInElsewhere, signInWaysQuery } from './queries.ts';
import { SignedOutLayout } from './SignedOutLayout.tsx';

/** Creates the account of an invitation link, or of the first owner. */
export function InvitationPage() {
  const token = useToken();
  const query = useQuery({ ...invitationQuery(token), enabled: token !== '' });
  const invitation = query.data;
  // An invalid token was truncated, usually by an e-mail program.
  const isCutOff = token === '' || (query.error instanceof Fault && query.error.status === 400);
  if (query.error instanceof Fault && query.error.code === 'invalid_invitation') {
    return (
      <SignedOutLayout
        title="This link no longer works"
        about="It was used, has expired, or was replaced by another link."
      >
        <Stack>
          <Text size="sm">
            If you have an account, sign in. Otherwise, ask an owner of this installation for another link.
          </Text>
          <ButtonLink to="/sign-in" search={{}}>
            Sign in
          </ButtonLink>
        </Stack>
      </SignedOutLayout>
    );
  }
  return (
    <SignedOutLayout
      title="Welcome to Trellis"
      about={
        invitation?.kind === 'setup'
          ? 'Create your account. It owns this installation and can invite other users.'
          : 'Create your account.'
      }
    >
      {isCutOff ? (
        <Alert color="yellow" title="This link is incomplete">
          <Text size="sm">Open the full link, including the part after the #.</Text>
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

/** If there is an OpenID provider, no password is needed. */
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
        Continue with {ways.oidc.name}
      </Button>
      <Dimmed>Sign in as {email}. You do not need a password here.</Dimmed>
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
          <Dimmed>
            As {invitation.role}
            {invitation.environments.length > 0 && ` in ${invitation.environments.join(', ')}`}.
          </Dimmed>
        )}
        {make.isError && <FaultNotice error={make.error} />}
        <Name autoFocus={invitation.kind === 'setup'} {...form.getInputProps('name')} />
        <Email readOnly={invitation.email !== null} {...form.getInputProps('email')} />
        <NewPassword {...form.getInputProps('password')} />
        <Button type="submit" loading={make.isPending}>
          Create account
        </Button>
      </Stack>
    </form>
  );
}
