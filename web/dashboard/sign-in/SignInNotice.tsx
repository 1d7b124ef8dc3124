import { Alert, Text } from '@mantine/core';
import { IconAlertTriangle, IconClock } from '@tabler/icons-react';
import { useEffect, useState } from 'react';
import { Fault } from '../../api/client.ts';
import { FaultNotice } from '../../ui/FaultNotice.tsx';

/** What the sign-in refuses, in words that help; the rest as everywhere. Counts down where one has to wait. */
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
    title: 'E-mail or password is not right',
    help: 'Try again. An owner can make you a link that sets a new password.',
  },
  invalid_password: { title: 'The password is not right', help: 'It is the one that you sign in with.' },
  invalid_code: {
    title: 'This code is not good',
    help: 'It changes every 30 seconds and is good once. If the next is refused, too, check that the clock of your phone is right.',
  },
  invalid_backup_code: {
    title: 'This backup code is not good',
    help: 'Each is good once. Write it as it was shown.',
  },
  invalid_two_factor_cookie: {
    title: 'This took too long',
    help: 'Sign in with your password again.',
  },
  account_temporarily_locked: {
    title: 'Too many wrong codes',
    help: 'The second factor is locked for 15 minutes.',
  },
  too_many_attempts_request_new_code: {
    title: 'Too many wrong codes',
    help: 'Sign in with your password again.',
  },
  credential_account_not_found: {
    title: 'You have no password here',
    help: 'You sign in through the OpenID provider, whose password and second factor count.',
  },
  invalid_token: {
    title: 'This link is no longer good',
    help: 'It is good once and for an hour. Ask an owner for another.',
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
      title="Too many tries from here"
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
