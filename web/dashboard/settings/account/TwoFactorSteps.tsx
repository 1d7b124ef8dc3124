import { Button, Group, Stack, Text, TextInput } from '@mantine/core';
import { useForm } from '@mantine/form';
import { useMutation } from '@tanstack/react-query';
import { Copyable } from '../../../ui/Copyable.tsx';
import { SignInNotice } from '../../sign-in/SignInNotice.tsx';
import { QrCode } from './QrCode.tsx';
import { confirmTwoFactor, type TwoFactorSetUp } from './queries.ts';

/** The secret for the authenticator, and the code that proves it has arrived there. */
export function TwoFactorSteps({
  setUp,
  onCancel,
  onDone,
}: {
  setUp: TwoFactorSetUp;
  onCancel: () => void;
  onDone: () => void;
}) {
  const form = useForm({
    initialValues: { code: '' },
    validate: { code: (code) => (/^\d{6}$/.test(code.trim()) ? null : 'Six digits') },
  });
  const confirm = useMutation({
    mutationFn: ({ code }: { code: string }) => confirmTwoFactor(code.trim()),
    onSuccess: onDone,
  });
  const secret = new URL(setUp.totpURI).searchParams.get('secret') ?? '';
  return (
    <Group align="flex-start" gap="xl">
      <QrCode text={setUp.totpURI} label="QR code for your authenticator" />
      <Stack gap="sm" flex="1 1 260px" miw={0}>
        <Text size="sm">
          <b>1.</b> Scan this with your authenticator, or type the key into it:
        </Text>
        <Copyable value={secret} what="the key" />
        <form onSubmit={form.onSubmit((given) => confirm.mutate(given))}>
          <Stack gap="sm">
            <TextInput
              label={
                <>
                  <b>2.</b> The six digits that it shows
                </>
              }
              inputMode="numeric"
              autoComplete="one-time-code"
              maw={320}
              {...form.getInputProps('code')}
            />
            {confirm.isError && <SignInNotice error={confirm.error} />}
            <Group gap="xs">
              <Button variant="default" onClick={onCancel}>
                Cancel
              </Button>
              <Button type="submit" loading={confirm.isPending}>
                Switch it on
              </Button>
            </Group>
          </Stack>
        </form>
      </Stack>
    </Group>
  );
}
