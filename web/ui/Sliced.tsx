import { Group, Pagination, Stack, Text } from '@mantine/core';
import { type ReactNode, useState } from 'react';

/** A list that is there as a whole, of which a page can draw no more than so many at once. Short ones look as ever. */
export function Sliced<T>({
  items,
  size = 100,
  children,
}: {
  items: readonly T[];
  size?: number;
  children: (shown: T[]) => ReactNode;
}) {
  const [page, setPage] = useState(1);
  const last = Math.max(1, Math.ceil(items.length / size));
  // The list may have become shorter.
  const at = Math.min(page, last);
  const before = (at - 1) * size;
  const shown = items.slice(before, before + size);
  if (last === 1) return children(shown);
  return (
    <Stack>
      {children(shown)}
      <Group justify="space-between" gap="sm">
        <Text size="sm" c="dimmed" role="status">
          {(before + 1).toLocaleString()} to {(before + shown.length).toLocaleString()} of{' '}
          {items.length.toLocaleString()}
        </Text>
        <Pagination
          total={last}
          value={at}
          onChange={setPage}
          getControlProps={(control) => ({ 'aria-label': `${control} page` })}
          getItemProps={(number) => ({ 'aria-label': `page ${number}` })}
        />
      </Group>
    </Stack>
  );
}
