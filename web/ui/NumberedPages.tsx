import { Group, Pagination, Text } from '@mantine/core';

/** Which part of a list is in sight, as "51 to 100 of 10,000", and the way to the others. The first page is 0. */
export function NumberedPages({
  page,
  size,
  shown,
  total,
  onPage,
}: {
  page: number;
  size: number;
  /** How many are in sight. */
  shown: number;
  total: number;
  onPage: (page: number) => void;
}) {
  const first = page * size + 1;
  const all = total.toLocaleString();
  return (
    <Group justify="space-between" gap="sm">
      <Text size="sm" c="dimmed" role="status">
        {shown === 0
          ? `None here: there are ${all} in all`
          : `${first.toLocaleString()} to ${(first + shown - 1).toLocaleString()} of ${all}`}
      </Text>
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
