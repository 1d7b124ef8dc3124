import { Group, Pagination } from '@mantine/core';
import { Dimmed } from './Dimmed.tsx';
import { upTo } from './size.ts';

/** The visible part of a list, as "51 to 100 of 10,000", and the other pages. The first page is 0. */
export function NumberedPages({
  page,
  size,
  shown,
  total,
  onPage,
}: {
  page: number;
  size: number;
  /** The number of visible rows. */
  shown: number;
  total: number;
  onPage: (page: number) => void;
}) {
  const first = page * size + 1;
  const all = upTo(total);
  return (
    <Group justify="space-between" gap="sm">
      <Dimmed role="status">
        {shown === 0
          ? `No entries on this page. There are ${all} in all`
          : `${first.toLocaleString()} to ${(first + shown - 1).toLocaleString()} of ${all}`}
      </Dimmed>
      {total > size && (
        <Pagination
          total={Math.ceil(total / size)}
          value={page + 1}
          onChange={(next) => onPage(next - 1)}
          getControlProps={(control) => ({ 'aria-label': `${control} page` })}
          getItemProps={(number) => ({ 'aria-label': `page ${number}` })}
        />
      )}
    </Group>
  );
}
