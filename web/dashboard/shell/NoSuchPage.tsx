import { Anchor, Box, Stack } from '@mantine/core';
import { useSuspenseQuery } from '@tanstack/react-query';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { IconMapOff } from '../../ui/icons.tsx';
import { Page } from '../../ui/Page.tsx';
import { ButtonLink } from '../links.tsx';
import { meQuery } from '../sign-in/queries.ts';
import { useEnvironment } from './environment.ts';

/** For an unknown address. */
export function NoSuchPage() {
  return (
    <Page title="Page not found">
      <EmptyState
        icon={<IconMapOff size={26} />}
        title="This address does not exist"
        action={<ButtonLink to="/">Go to the start page</ButtonLink>}
      >
        Check the address, or go to the start page.
      </EmptyState>
    </Page>
  );
}

/** Instead of the frame, if the environment does not exist or the user has no role in it. */
export function NoSuchEnvironmentPage() {
  const environment = useEnvironment();
  const { data: me } = useSuspenseQuery(meQuery());
  const existing = me.environments[0]?.name;
  return (
    <Box maw={640} mx="auto" p="lg">
      <Page title={`There is no environment ${environment}`}>
        <EmptyState
          icon={<IconMapOff size={26} />}
          title="Check the address"
          action={
            existing === undefined ? (
              <ButtonLink to="/">Go to the start page</ButtonLink>
            ) : (
              <ButtonLink to="/$environment/home" params={{ environment: existing }}>
                Go to {existing}
              </ButtonLink>
            )
          }
        >
          If the environment exists, an owner can give you a role in it under Settings, People.
        </EmptyState>
      </Page>
    </Box>
  );
}

/** Replaces a page that cannot be rendered. */
export function BrokenPage({ error }: { error: unknown }) {
  return (
    <Box maw={640} mx="auto" p="lg">
      <Stack>
        <FaultNotice error={error} onRetry={() => location.reload()} />
        <Anchor href="/app">Go to the start page</Anchor>
      </Stack>
    </Box>
  );
}
