import { Anchor, Box, Stack } from '@mantine/core';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { IconMapOff } from '../../ui/icons.tsx';
import { Page } from '../../ui/Page.tsx';
import { ButtonLink } from '../links.tsx';

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
