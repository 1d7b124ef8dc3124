import { Anchor, Box, Stack } from '@mantine/core';
import { FaultNotice } from '../../ui/FaultNotice.tsx';

/** In place of a page that cannot be shown at all. */
export function BrokenPage({ error }: { error: unknown }) {
  return (
    <Box maw={640} mx="auto" p="lg">
      <Stack>
        <FaultNotice error={error} onRetry={() => location.reload()} />
        <Anchor href="/app">To the start</Anchor>
      </Stack>
    </Box>
  );
}
