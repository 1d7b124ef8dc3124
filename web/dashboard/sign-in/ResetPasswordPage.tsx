import { Alert, Button, Stack, Text } from '@mantine/core';
import { useForm } from '@mantine/form';
import { useMutation } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { NewPassword, rules, useToken } from './fields.tsx';
import { resetPassword } from './queries.ts';
import { SignedOutLayout } from './SignedOutLayout.tsx';
import { SignInNotice } from './SignInNotice.tsx';

/** Sets a new password with a reset link. */
export function ResetPasswordPage() {
  const token = useToken();
  const navigate = useNavigate();
  const form = useForm({ initialValues: { password: '' }, validate: { password: rules.password } });
  const reset = useMutation({
    mutationFn: resetPassword,
    onSuccess: () => navigate({ to: '/sign-in', search: {} }),
  });
  return (
    <SignedOutLayout title="Set a new password" about="Use it the next time you sign in.">
      {token === '' ? (
        <Alert color="yellow" title="This link is incomplete">
          <Text size="sm">Open the full link, including the part after the #.</Text>
        </Alert>
      ) : (
        <form onSubmit={form.onSubmit(({ password }) => reset.mutate({ token, newPassword: password }))}>
          <Stack>
            {reset.isError && <SignInNotice error={reset.error} />}
            <NewPassword {...form.getInputProps('password')} />
            <Button type="submit" loading={reset.isPending}>
              Set the password
            </Button>
          </Stack>
        </form>
      )}
    </SignedOutLayout>
  );
}
