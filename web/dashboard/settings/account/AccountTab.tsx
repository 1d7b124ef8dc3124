import { Alert, Button, Card, Group, Stack, Text, TextInput, Title } from '@mantine/core';
import { useForm } from '@mantine/form';
import { notifications } from '@mantine/notifications';
import { useMutation, useQueryClient, useSuspenseQuery } from '@tanstack/react-query';
import { type Me, meQuery } from '../../sign-in/queries.ts';
import { SignInNotice } from '../../sign-in/SignInNotice.tsx';
import { PasswordCard } from './PasswordCard.tsx';
import { rename } from './queries.ts';
import { SessionsCard } from './SessionsCard.tsx';
import { TwoFactorCard } from './TwoFactorCard.tsx';

/** What each person sets for themselves. */
export function AccountTab() {
  const { data: me } = useSuspenseQuery(meQuery());
  if (me.id === 'local') {
    return (
      <Alert color="blue" title="The sign-in is off">
        Every user who reaches this service on this machine is an owner, so there are no accounts. Start the
        service without TRELLIS_SIGN_IN=off to have accounts.
      </Alert>
    );
  }
  return (
    <Stack gap="lg" maw={760}>
      <NameCard me={me} />
      <PasswordCard />
      <TwoFactorCard isOn={me.two_factor} />
      <SessionsCard />
    </Stack>
  );
}

function NameCard({ me }: { me: Me }) {
  const queries = useQueryClient();
  const form = useForm({
    initialValues: { name: me.name },
    validate: { name: (name) => (name.trim() === '' ? 'A name, please' : null) },
  });
  const save = useMutation({
    mutationFn: ({ name }: { name: string }) => rename(name.trim()),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ['me'] });
      form.resetDirty();
      notifications.show({ message: 'Saved.', color: 'green' });
    },
  });
  return (
    <Card>
      <form onSubmit={form.onSubmit((values) => save.mutate(values))}>
        <Stack gap="sm">
          <Stack gap={2}>
            <Title order={2}>You</Title>
            <Text size="sm" c="dimmed" className="wrap">
              {me.email}
              {me.role !== null && `, ${me.role}`}
            </Text>
          </Stack>
          {save.isError && <SignInNotice error={save.error} />}
          <Group align="flex-end" gap="sm">
            <TextInput
              label="Name"
              autoComplete="name"
              maxLength={100}
              flex="1 1 240px"
              {...form.getInputProps('name')}
            />
            <Button type="submit" variant="default" loading={save.isPending} disabled={!form.isDirty()}>
              Save the name
            </Button>
          </Group>
        </Stack>
      </form>
    </Card>
  );
}
