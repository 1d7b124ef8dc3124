import { Alert, Button, Stack, Text } from '@mantine/core';
import { useForm } from '@mantine/form';
import { useMutation } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { NewPassword, rules } from './fields.tsx';
import { resetPassword } from './queries.ts';
import { SignedOutLayout } from './SignedOutLayout.tsx';
import { SignInNotice } from './SignInNotice.tsx';
import { useToken } from './token.ts';

/** A new password for the user who holds a link that an owner has made. */
export function ResetPasswordPage() {
  const token = useToken();
  const navigate = useNavigate();
  const form = useForm({ initialValues: { password: '' }, validate: { password: rules.password } });
  const reset = useMutation({
    mutationFn: resetPassword,
    onSuccess: () => navigate({ to: '/sign-in', search: {} }),
  });
  return (
    <SignedOutLayout title="A new password" about="You sign in with it afterwards.">
      {token === '' ? (
        <Alert color="yellow" title="This address is not complete">
          <Text size="sm">Open the whole link, with everything that follows the #.</Text>
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
