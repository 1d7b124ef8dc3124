import { Badge, Button, Card, Group, Stack, Text, Title } from '@mantine/core';
import { useForm } from '@mantine/form';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Password } from '../../sign-in/fields.tsx';
import { SignInNotice } from '../../sign-in/SignInNotice.tsx';
import { BackupCodes } from './BackupCodes.tsx';
import { beginTwoFactor, endTwoFactor, newBackupCodes, type TwoFactorSetUp } from './queries.ts';
import { TwoFactorSteps } from './TwoFactorSteps.tsx';

type Act = 'begin' | 'end' | 'codes';
const acts: Record<Act, { label: string; color?: string }> = {
  begin: { label: 'Set it up' },
  end: { label: 'Switch it off', color: 'red' },
  codes: { label: 'New backup codes' },
};

/** The second factor: set up, new backup codes, switched off. Each asks for the password first. */
export function TwoFactorCard({ isOn }: { isOn: boolean }) {
  const queries = useQueryClient();
  const [act, setAct] = useState<Act>();
  const [setUp, setSetUp] = useState<TwoFactorSetUp>();
  const [codes, setCodes] = useState<string[]>();
  const reread = () => queries.invalidateQueries({ queryKey: ['me'] });
  const done = () => {
    setAct(undefined);
    setSetUp(undefined);
    setCodes(undefined);
  };
  return (
    <Card>
      <Stack gap="sm">
        <Group justify="space-between" align="flex-start">
          <Stack gap={2} flex="1 1 260px">
            <Group gap="xs">
              <Title order={2}>Second factor</Title>
              <Badge color={isOn ? 'green' : 'gray'}>{isOn ? 'on' : 'off'}</Badge>
            </Group>
            <Text size="sm" c="dimmed">
              Beside the password, a code of an authenticator on your phone. Who signs in through an OpenID
              provider has that provider's.
            </Text>
          </Stack>
          {act === undefined && setUp === undefined && codes === undefined && (
            <Group gap="xs">
              {(isOn ? (['codes', 'end'] as const) : (['begin'] as const)).map((one) => (
                <Button key={one} variant="default" onClick={() => setAct(one)}>
                  {acts[one].label}
                </Button>
              ))}
            </Group>
          )}
        </Group>
        {act !== undefined && (
          <PasswordStep
            act={act}
            onCancel={done}
            onSetUp={(given) => {
              setAct(undefined);
              setSetUp(given);
            }}
            onCodes={(given) => {
              setAct(undefined);
              setCodes(given);
            }}
            onEnded={async () => {
              await reread();
              done();
            }}
          />
        )}
        {setUp !== undefined && (
          <TwoFactorSteps
            setUp={setUp}
            onCancel={done}
            onDone={async () => {
              await reread();
              setSetUp(undefined);
              setCodes(setUp.backupCodes);
            }}
          />
        )}
        {codes !== undefined && <BackupCodes codes={codes} onDone={done} />}
      </Stack>
    </Card>
  );
}

function PasswordStep({
  act,
  onCancel,
  onSetUp,
  onCodes,
  onEnded,
}: {
  act: Act;
  onCancel: () => void;
  onSetUp: (given: TwoFactorSetUp) => void;
  onCodes: (given: string[]) => void;
  onEnded: () => void;
}) {
  const form = useForm({ initialValues: { password: '' } });
  const go = useMutation({
    mutationFn: async ({ password }: { password: string }) => {
      if (act === 'begin') onSetUp(await beginTwoFactor(password));
      else if (act === 'codes') onCodes(await newBackupCodes(password));
      else {
        await endTwoFactor(password);
        onEnded();
      }
    },
  });
  const { label, color } = acts[act];
  return (
    <form onSubmit={form.onSubmit((given) => go.mutate(given))}>
      <Stack gap="sm" maw={420}>
        {go.isError && <SignInNotice error={go.error} />}
        <Password label="Your password" {...form.getInputProps('password')} />
        <Group gap="xs">
          <Button variant="default" onClick={onCancel}>
            Cancel
          </Button>
          <Button type="submit" loading={go.isPending} {...(color !== undefined && { color })}>
            {act === 'begin' ? 'Go on' : label}
          </Button>
        </Group>
      </Stack>
    </form>
  );
}
