import { Stack } from '@mantine/core';
import { type ReactNode, useState } from 'react';
import { NumberedPages } from './NumberedPages.tsx';

/** A complete list, rendered in pages. A short list has no pager. */
export function Sliced<T>({
  items,
  size = 100,
  children,
}: {
  items: readonly T[];
  size?: number;
  children: (shown: T[]) => ReactNode;
}) {
  const [page, setPage] = useState(0);
  const last = Math.max(0, Math.ceil(items.length / size) - 1);
  // The list may be shorter now.
  const at = Math.min(page, last);
  const before = at * size;
  const shown = items.slice(before, before + size);
  if (last === 0) return children(shown);
  return (
    <Stack>
      {children(shown)}
      <NumberedPages page={at} size={size} shown={shown.length} total={items.length} onPage={setPage} />
    </Stack>
  );
}
