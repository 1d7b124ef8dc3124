import { Skeleton, Stack } from '@mantine/core';

/** Placeholders as high as the rows, so that the layout does not move. */
export function LoadingRows({ rows = 5, height = 52 }: { rows?: number; height?: number }) {
  return (
    <Stack gap="xs" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, row) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the rows are all alike and never move
        <Skeleton key={row} h={height} radius="md" />
      ))}
    </Stack>
  );
}
