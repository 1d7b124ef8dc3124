import { Alert, Button, Divider, Stack, Text, TextInput } from '@mantine/core';
import { useForm } from '@mantine/form';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useRouter, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { Email, Password, rules } from './fields.tsx';
import { requestReset, signIn, signInElsewhere, signInWaysQuery, signInWithCode } from './queries.ts';
import { SignedOutLayout } from './SignedOutLayout.tsx';
import { SignInNotice } from './SignInNotice.tsx';

export function SignInPage() {
  const { next } = useSearch({ from: '/sign-in' });
  const router = useRouter();
  const queries = useQueryClient();
  const { data: ways } = useQuery(signInWaysQuery());
  const [asksCode, setAsksCode] = useState(false);
  const [forgot, setForgot] = useState(false);
  const goOn = () => {
    queries.clear();
    router.history.push(`/app${next ?? ''}`);
  };
  const form = useForm({ initialValues: { email: '', password: '' }, validate: { email: rules.email } });
  const first = useMutation({
    mutationFn: signIn,
    onSuccess: ({ needsCode }) => (needsCode ? setAsksCode(true) : goOn()),
  });
  const elsewhere = useMutation({
    mutationFn: () => signInElsewhere(`/app${next ?? ''}`),
    onSuccess: (url) => location.assign(url),
  });
  if (asksCode) return <SecondStep onDone={goOn} onBack={() => setAsksCode(false)} />;
  if (forgot) return <Forgotten email={form.values.email} onBack={() => setForgot(false)} />;
  return (
    <SignedOutLayout
      title="Sign in to Trellis"
      about="Connections, a proxy and a record cache for the accounts of your users."
    >
      <Stack>
        <form onSubmit={form.onSubmit((values) => first.mutate(values))}>
          <Stack>
            {ways?.needs_owner && (
              <Alert color="blue" title="No owner yet" role="note">
                <Text size="sm">
                  Open the set-up link to create the owner. Each start of the service writes it to the log, in
                  the line <code>set up</code>. A link is valid once, for a day.
                </Text>
              </Alert>
            )}
            {first.isError && <SignInNotice error={first.error} />}
            {elsewhere.isError && <SignInNotice error={elsewhere.error} />}
            <Email {...form.getInputProps('email')} />
            <Password {...form.getInputProps('password')} />
            <Button type="submit" loading={first.isPending}>
              Sign in
            </Button>
            {ways?.mail && (
              <Button variant="subtle" onClick={() => setForgot(true)}>
                Forgot your password?
              </Button>
            )}
          </Stack>
        </form>
        {ways?.oidc && (
          <>
            <Divider label="or" />
            <Button variant="default" loading={elsewhere.isPending} onClick={() => elsewhere.mutate()}>
              Sign in with {ways.oidc.name}
            </Button>
          </>
        )}
      </Stack>
    </SignedOutLayout>
  );
}

function Forgotten({ email, onBack }: { email: string; onBack: () => void }) {
  const form = useForm({ initialValues: { email }, validate: { email: rules.email } });
  const request = useMutation({ mutationFn: requestReset });
  return (
    <SignedOutLayout
      title="Forgot your password?"
      about="You receive a link by e-mail to set a new password."
    >
      {request.isSuccess ? (
        <Stack>
          <Alert color="blue" title="Check your e-mail" role="status">
            <Text size="sm">
              If an account with the address {request.variables} has a password, a link was sent to it. It is
              valid once, for one hour.
            </Text>
          </Alert>
          <Button variant="default" onClick={onBack}>
            Back to sign in
          </Button>
        </Stack>
      ) : (
        <form onSubmit={form.onSubmit((values) => request.mutate(values.email.trim()))}>
          <Stack>
            {request.isError && <SignInNotice error={request.error} />}
            <Email {...form.getInputProps('email')} />
            <Button type="submit" loading={request.isPending}>
              Send me a link
            </Button>
            <Button variant="subtle" onClick={onBack}>
              Back to sign in
            </Button>
          </Stack>
        </form>
      )}
    </SignedOutLayout>
  );
}

function SecondStep({ onDone, onBack }: { onDone: () => void; onBack: () => void }) {
  const form = useForm({ initialValues: { code: '' } });
  const second = useMutation({ mutationFn: signInWithCode, onSuccess: onDone });
  return (
    <SignedOutLayout
      title="Two-factor authentication"
      about="Enter the six digits from your authenticator, or a backup code."
    >
      <form onSubmit={form.onSubmit(({ code }) => second.mutate(code.trim()))}>
        <Stack>
          {second.isError && <SignInNotice error={second.error} />}
          <TextInput label="Code" autoComplete="one-time-code" required {...form.getInputProps('code')} />
          <Button type="submit" loading={second.isPending}>
            Continue
          </Button>
          <Button variant="subtle" onClick={onBack}>
            Back to the password
          </Button>
        </Stack>
      </form>
    </SignedOutLayout>
  );
}
