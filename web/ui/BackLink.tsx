import { Anchor, type AnchorProps, type ElementProps, Group } from '@mantine/core';
import { IconChevronLeft } from './icons.tsx';

/** The way back to the page above, before a page's title. */
export function BackLink({ children, ...anchor }: AnchorProps & ElementProps<'a', keyof AnchorProps>) {
  return (
    <Anchor size="sm" c="dimmed" {...anchor}>
      <Group gap={4} mb={6} wrap="nowrap" className="wrap">
        <IconChevronLeft size={14} className="rigid" /> {children}
      </Group>
    </Anchor>
  );
}
