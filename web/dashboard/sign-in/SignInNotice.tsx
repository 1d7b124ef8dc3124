import { Alert, Text } from '@mantine/core';
import { useEffect, useState } from 'react';
import { Fault } from '../../api/client.ts';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { IconAlertTriangle, IconClock } from '../../ui/icons.tsx';

/** The errors of the sign-in with a next step; other errors as on all pages. Counts down after too many attempts. */
export function SignInNotice({ error }: { error: unknown }) {
  if (error instanceof Fault && error.status === 429) {
    return <Waiting key={error.requestId} seconds={error.retryAfterS ?? 60} />;
  }
  const words = error instanceof Fault ? sentences[error.code] : undefined;
  if (words === undefined) return <FaultNotice error={error} />;
  return (
    <Alert color="red" icon={<IconAlertTriangle size={18} />} title={words.title} role="alert">
      <Text size="sm">{words.help}</Text>
    </Alert>
  );
}

const sentences: Record<string, { title: string; help: string }> = {
  invalid_email_or_password: {
    title: 'Wrong e-mail or password',
    help: 'Try again. An owner can create a link to set a new password.',
  },
  invalid_password: { title: 'Wrong password', help: 'Enter the password that you use to sign in.' },
  invalid_code: {
    title: 'Wrong code',
    help: 'A code is valid once, for 30 seconds. If the next code fails too, check the clock of your device.',
  },
  invalid_backup_code: {
    title: 'Wrong backup code',
    help: 'Each backup code is valid once. Enter it exactly as shown.',
  },
  invalid_two_factor_cookie: { title: 'The sign-in has expired', help: 'Sign in with your password again.' },
  account_temporarily_locked: {
    title: 'Too many wrong codes',
    help: 'The second factor is locked for 15 minutes.',
  },
  too_many_attempts_request_new_code: {
    title: 'Too many wrong codes',
    help: 'Sign in with your password again.',
  },
  credential_account_not_found: {
    title: 'This account has no password',
    help: 'Sign in through the OpenID provider, with its password and second factor.',
  },
  invalid_token: {
    title: 'This link has expired',
    help: 'A link is valid once, for one hour. Ask an owner for a new link.',
  },
  password_too_short: { title: 'The password is too short', help: 'At least 12 characters.' },
  password_too_long: { title: 'The password is too long', help: 'At most 128 characters.' },
};

function Waiting({ seconds }: { seconds: number }) {
  const [endsAt] = useState(() => Date.now() + seconds * 1000);
  const [left, setLeft] = useState(seconds);
  useEffect(() => {
    const timer = setInterval(() => setLeft(Math.max(0, Math.ceil((endsAt - Date.now()) / 1000))), 1000);
    return () => clearInterval(timer);
  }, [endsAt]);
  return (
    <Alert
      color={left > 0 ? 'orange' : 'blue'}
      icon={<IconClock size={18} />}
      title="Too many attempts"
      role="alert"
    >
      <Text size="sm">
        {left > 0
          ? `Wait ${left === 1 ? 'one second' : `${left} seconds`}, then try again.`
          : 'You can try again now.'}
      </Text>
    </Alert>
  );
}
