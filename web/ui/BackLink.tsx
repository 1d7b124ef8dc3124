import { Anchor, Group } from '@mantine/core';
import { IconChevronLeft } from '@tabler/icons-react';
import type { ReactNode } from 'react';

/** The way back to the page above, before a page's title; `link` gives the anchor its target. */
export function BackLink({
  link,
  children,
}: {
  link: (props: Record<string, unknown>) => ReactNode;
  children: ReactNode;
}) {
  return (
    <Anchor size="sm" c="dimmed" renderRoot={link}>
      <Group gap={4} mb={6} wrap="nowrap" className="wrap">
        <IconChevronLeft size={14} className="rigid" /> {children}
      </Group>
    </Anchor>
  );
}
