import { Button, Card, Group, Stack, Text, Title } from '@mantine/core';
import { useForm } from '@mantine/form';
import { notifications } from '@mantine/notifications';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { NewPassword, Password, rules } from '../../sign-in/fields.tsx';
import { SignInNotice } from '../../sign-in/SignInNotice.tsx';
import { changePassword } from './queries.ts';

export function PasswordCard() {
  const queries = useQueryClient();
  const [isOpen, setOpen] = useState(false);
  const form = useForm({
    initialValues: { currentPassword: '', newPassword: '' },
    validate: { newPassword: rules.password },
  });
  const close = () => {
    form.reset();
    setOpen(false);
  };
  const change = useMutation({
    mutationFn: changePassword,
    onSuccess: async () => {
      close();
      notifications.show({ message: 'The password is changed. Other sessions have ended.', color: 'green' });
      await queries.invalidateQueries({ queryKey: ['sessions'] });
    },
  });
  return (
    <Card>
      <Stack gap="sm">
        <Group justify="space-between" align="flex-start">
          <Stack gap={2} flex="1 1 260px">
            <Title order={2}>Password</Title>
            <Text size="sm" c="dimmed">
              A new one ends all your other sessions.
            </Text>
          </Stack>
          {!isOpen && (
            <Button variant="default" onClick={() => setOpen(true)}>
              Change the password
            </Button>
          )}
        </Group>
        {isOpen && (
          <form onSubmit={form.onSubmit((given) => change.mutate(given))}>
            <Stack gap="sm" maw={420}>
              {change.isError && <SignInNotice error={change.error} />}
              <Password label="Present password" data-autofocus {...form.getInputProps('currentPassword')} />
              <NewPassword label="New password" {...form.getInputProps('newPassword')} />
              <Group gap="xs">
                <Button variant="default" onClick={close}>
                  Cancel
                </Button>
                <Button type="submit" loading={change.isPending}>
                  Set the password
                </Button>
              </Group>
            </Stack>
          </form>
        )}
      </Stack>
    </Card>
  );
}
