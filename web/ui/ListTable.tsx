import { Table, type TableProps, type TableTdProps, type TableThProps } from '@mantine/core';
import type { ReactNode } from 'react';

/**
 * A column: its heading, and a cell for each row. `visibleFrom` and `ta` apply to both, the other props to the cell.
 */
type Column<T> = {
  title?: ReactNode;
  /** The heading for screen readers, for a column of buttons. */
  label?: string;
  /** Props of the heading alone, such as its width. */
  heading?: TableThProps & { title?: string };
  cell: (row: T) => ReactNode;
} & Omit<TableTdProps, 'children' | 'title'>;

/** A framed table with a row for each item. False columns are left out. */
export function ListTable<T>({
  rows,
  keyOf,
  columns,
  rowClass,
  ...table
}: {
  rows: readonly T[];
  keyOf: (row: T) => string | number;
  columns: (Column<T> | false)[];
  /** `fill-row`: the link in the first cell covers the row. */
  rowClass?: string;
} & Omit<TableProps, 'children'>) {
  const shown = columns.filter((column) => column !== false);
  return (
    <Table.ScrollContainer minWidth={300} className="framed">
      <Table {...table}>
        <Table.Thead>
          <Table.Tr>
            {shown.map(({ title, label, heading, visibleFrom, ta }, index) => (
              <Table.Th
                // biome-ignore lint/suspicious/noArrayIndexKey: columns never move
                key={index}
                aria-label={label}
                {...(visibleFrom !== undefined && { visibleFrom })}
                {...(ta !== undefined && { ta })}
                {...heading}
              >
                {title}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map((row) => (
            <Table.Tr key={keyOf(row)} className={rowClass}>
              {shown.map(({ title: _, label: __, heading: ___, cell, ...td }, index) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: columns never move
                <Table.Td key={index} {...td}>
                  {cell(row)}
                </Table.Td>
              ))}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}
