import { Alert, Button, Stack, Text } from '@mantine/core';
import { useSuspenseQuery } from '@tanstack/react-query';
import { meQuery } from '../sign-in/queries.ts';
import { SignedOutLayout } from '../sign-in/SignedOutLayout.tsx';
import { useSignOut } from './sign-out.ts';

/** For a user without an environment. */
export function NoEnvironmentPage() {
  const { data: me } = useSuspenseQuery(meQuery());
  const { leave, isLeaving } = useSignOut();
  return (
    <SignedOutLayout title="You have no environment" about={`You are signed in as ${me.email}.`}>
      <Stack>
        <Alert color="yellow" title="Ask an owner of this installation for access">
          <Text size="sm">
            An owner can give you a role in an environment under Settings, People. Then reload this page.
          </Text>
        </Alert>
        <Button onClick={() => location.reload()}>Reload</Button>
        <Button variant="default" loading={isLeaving} onClick={leave}>
          Sign out
        </Button>
      </Stack>
    </SignedOutLayout>
  );
}
