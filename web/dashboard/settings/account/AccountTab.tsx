import {
  Alert,
  Badge,
  Box,
  Button,
  Card,
  Code,
  Group,
  SimpleGrid,
  Stack,
  Text,
  TextInput,
  Title,
} from '@mantine/core';
import { useForm } from '@mantine/form';
import { useMutation, useQuery, useQueryClient, useSuspenseQuery } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { encode } from 'uqr';
import { Copyable } from '../../../ui/Copyable.tsx';
import { CopyButton } from '../../../ui/CopyButton.tsx';
import { Dimmed } from '../../../ui/Dimmed.tsx';
import { IconAlertTriangle, IconDeviceDesktop, IconDeviceMobile, IconDownload } from '../../../ui/icons.tsx';
import { Loaded } from '../../../ui/Loaded.tsx';
import { LoadingRows } from '../../../ui/Loading.tsx';
import { RelativeTime } from '../../../ui/RelativeTime.tsx';
import { NewPassword, Password, rules } from '../../sign-in/fields.tsx';
import { type Me, meQuery } from '../../sign-in/queries.ts';
import { SignInNotice } from '../../sign-in/SignInNotice.tsx';
import { useChange } from '../../use-change.ts';
import {
  beginTwoFactor,
  changePassword,
  confirmTwoFactor,
  endOtherSessions,
  endSession,
  endTwoFactor,
  newBackupCodes,
  rename,
  sessionsQuery,
  type TwoFactorSetUp,
} from './queries.ts';

/** The settings of the user's own account. */
export function AccountTab() {
  const { data: me } = useSuspenseQuery(meQuery());
  if (me.id === 'local') {
    return (
      <Alert color="blue" title="Sign-in is turned off">
        Every user who can reach this service on this machine is an owner. Start the service without
        TRELLIS_SIGN_IN=off to use accounts.
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
  const form = useForm({
    initialValues: { name: me.name },
    validate: { name: (name) => (name.trim() === '' ? 'Enter a name.' : null) },
  });
  const save = useChange(({ name }: { name: string }) => rename(name.trim()), {
    stale: [['me']],
    done: 'Saved.',
    after: () => form.resetDirty(),
  });
  return (
    <Card>
      <form onSubmit={form.onSubmit((values) => save.mutate(values))}>
        <Stack gap="sm">
          <Stack gap={2}>
            <Title order={2}>You</Title>
            <Dimmed className="wrap">
              {me.email}
              {me.role !== null && `, ${me.role}`}
            </Dimmed>
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

function PasswordCard() {
  const [isOpen, setOpen] = useState(false);
  const form = useForm({
    initialValues: { currentPassword: '', newPassword: '' },
    validate: { newPassword: rules.password },
  });
  const close = () => {
    form.reset();
    setOpen(false);
  };
  const change = useChange(changePassword, {
    stale: [['sessions']],
    done: 'The password is changed. All other sessions are ended.',
    after: close,
  });
  return (
    <Card>
      <Stack gap="sm">
        <Group justify="space-between" align="flex-start">
          <Stack gap={2} flex="1 1 260px">
            <Title order={2}>Password</Title>
            <Dimmed>A new password ends all your other sessions.</Dimmed>
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
              <Password label="Current password" data-autofocus {...form.getInputProps('currentPassword')} />
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

type Act = 'begin' | 'end' | 'codes';
const acts: Record<Act, { label: string; color?: string }> = {
  begin: { label: 'Set up' },
  end: { label: 'Turn off', color: 'red' },
  codes: { label: 'New backup codes' },
};

/** The second factor: set-up, new backup codes, turning it off. Each requires the password first. */
function TwoFactorCard({ isOn }: { isOn: boolean }) {
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
              <Title order={2}>Two-factor authentication</Title>
              <Badge color={isOn ? 'green' : 'gray'}>{isOn ? 'on' : 'off'}</Badge>
            </Group>
            <Dimmed>
              A code from an authenticator app, in addition to the password. Sign-in through an OpenID
              provider uses the second factor of that provider.
            </Dimmed>
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
            {act === 'begin' ? 'Continue' : label}
          </Button>
        </Group>
      </Stack>
    </form>
  );
}

/** The secret for the authenticator, and the code that confirms it. */
function TwoFactorSteps({
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
    validate: { code: (code) => (/^\d{6}$/.test(code.trim()) ? null : 'Enter six digits.') },
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
          <b>1.</b> Scan this code with your authenticator, or enter the key:
        </Text>
        <Copyable value={secret} what="the key" />
        <form onSubmit={form.onSubmit((given) => confirm.mutate(given))}>
          <Stack gap="sm">
            <TextInput
              label={
                <>
                  <b>2.</b> Enter the six digits from the authenticator
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
                Turn on
              </Button>
            </Group>
          </Stack>
        </form>
      </Stack>
    </Group>
  );
}

/**
 * A QR code, generated in the browser so that its text is not sent anywhere. Dark on white in both color schemes, as
 * readers require.
 */
function QrCode({ text, label }: { text: string; label: string }) {
  const { size, path } = useMemo(() => {
    const { data, size: modules } = encode(text, { ecc: 'M', border: 3 });
    const cells = data.flatMap((row, y) => row.map((isDark, x) => (isDark ? `M${x} ${y}h1v1h-1z` : '')));
    return { size: modules, path: cells.join('') };
  }, [text]);
  return (
    <Box bg="white" bdrs="md" w={196} h={196} flex="none" className="framed">
      <svg
        viewBox={`0 0 ${size} ${size}`}
        width="194"
        height="194"
        role="img"
        aria-label={label}
        shapeRendering="crispEdges"
      >
        <rect width={size} height={size} fill="#fff" />
        <path d={path} fill="#000" />
      </svg>
    </Box>
  );
}

/** Backup codes, which are shown only once. */
function BackupCodes({ codes, onDone }: { codes: string[]; onDone: () => void }) {
  const text = codes.join('\n');
  const href = useMemo(() => `data:text/plain;charset=utf-8,${encodeURIComponent(`${text}\n`)}`, [text]);
  return (
    <Stack gap="sm">
      <Alert
        color="yellow"
        icon={<IconAlertTriangle size={18} />}
        title="Save these codes now. They are shown only once."
      >
        <Text size="sm">
          Each code signs you in once if you do not have your authenticator. Previous backup codes are no
          longer valid.
        </Text>
      </Alert>
      <SimpleGrid cols={{ base: 2, xs: 3, sm: 5 }} spacing="xs">
        {codes.map((code) => (
          <Code key={code} ta="center" p={6}>
            {code}
          </Code>
        ))}
      </SimpleGrid>
      <Group gap="xs">
        <CopyButton value={text} what="the codes" label="Copy" />
        <Button
          component="a"
          variant="default"
          href={href}
          download="trellis-backup-codes.txt"
          leftSection={<IconDownload size={16} />}
        >
          Download
        </Button>
        <Button onClick={onDone}>I've saved the codes</Button>
      </Group>
    </Stack>
  );
}

/** The sessions of the user, with buttons to end them. */
function SessionsCard() {
  const query = useQuery({ ...sessionsQuery(), refetchInterval: 15_000 });
  const options = { stale: [['sessions']], failed: 'Not ended' };
  const end = useChange(endSession, options);
  const endOthers = useChange(endOtherSessions, options);
  const others = query.data?.filter(({ isOwn }) => !isOwn).length ?? 0;
  return (
    <Card>
      <Stack gap="sm">
        <Group justify="space-between" align="flex-start">
          <Stack gap={2} flex="1 1 260px">
            <Title order={2}>Sessions</Title>
            <Dimmed>A session ends seven days after its last use.</Dimmed>
          </Stack>
          {others > 0 && (
            <Button variant="default" loading={endOthers.isPending} onClick={() => endOthers.mutate()}>
              End all other sessions
            </Button>
          )}
        </Group>
        <Loaded query={query} loading={<LoadingRows rows={2} height={56} />}>
          {(sessions) => (
            <Stack gap="xs">
              {sessions.map((session) => (
                <Group key={session.token} gap="sm" wrap="nowrap" justify="space-between" mih={48}>
                  <Group gap="sm" wrap="nowrap" miw={0}>
                    {/Mobile|Android|iPhone/.test(session.userAgent ?? '') ? (
                      <IconDeviceMobile size={22} stroke={1.5} className="rigid" />
                    ) : (
                      <IconDeviceDesktop size={22} stroke={1.5} className="rigid" />
                    )}
                    <Stack gap={0} miw={0}>
                      <Group gap={6}>
                        <Text size="sm" fw={550}>
                          {browserOf(session.userAgent)}
                        </Text>
                        {session.isOwn && <Badge color="green">current</Badge>}
                      </Group>
                      <Dimmed className="wrap">
                        {session.ipAddress !== undefined &&
                          session.ipAddress !== null &&
                          session.ipAddress !== '' &&
                          `${session.ipAddress}, `}
                        signed in <RelativeTime at={session.createdAt} />
                      </Dimmed>
                    </Stack>
                  </Group>
                  {!session.isOwn && (
                    <Button
                      size="compact-sm"
                      variant="default"
                      flex="none"
                      loading={end.isPending && end.variables === session.token}
                      onClick={() => end.mutate(session.token)}
                    >
                      End
                    </Button>
                  )}
                </Group>
              ))}
            </Stack>
          )}
        </Loaded>
      </Stack>
    </Card>
  );
}

/** "Firefox on Windows": the browser and system of a user agent. */
function browserOf(userAgent: string | null | undefined): string {
  const text = userAgent ?? '';
  const browser = /Edg\//.test(text)
    ? 'Edge'
    : /Firefox\//.test(text)
      ? 'Firefox'
      : /Chrome\//.test(text)
        ? 'Chrome'
        : /Safari\//.test(text)
          ? 'Safari'
          : text.split(/[ /]/)[0];
  const system = /Windows|Android|iPhone|iPad|Mac OS X|Linux/.exec(text)?.[0]?.replace('Mac OS X', 'macOS');
  if (browser === undefined || browser === '') return 'Unknown browser';
  return system === undefined ? browser : `${browser} on ${system}`;
}
