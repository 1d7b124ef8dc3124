import { Alert, Button, Stack, Text } from '@mantine/core';
import { useSuspenseQuery } from '@tanstack/react-query';
import { meQuery } from '../sign-in/queries.ts';
import { SignedOutLayout } from '../sign-in/SignedOutLayout.tsx';
import { useSignOut } from './sign-out.ts';

/** For a user whom no environment is open to. */
export function NoEnvironmentPage() {
  const { data: me } = useSuspenseQuery(meQuery());
  const { leave, isLeaving } = useSignOut();
  return (
    <SignedOutLayout title="No environment is open to you" about={`You are signed in as ${me.email}.`}>
      <Stack>
        <Alert color="yellow" title="Ask an owner of this installation">
          <Text size="sm">
            They give you a role in an environment, at Settings, People. Then reload this page.
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
