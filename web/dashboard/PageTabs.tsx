import { SimpleGrid, Skeleton, Stack, Tabs } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import { type ReactNode, useEffect, useRef } from 'react';

/** `content` is called for the open tab only. */
export type PageTab = { name: string; label: string; content: () => ReactNode };

/**
 * The tabs of a page. The open tab is in the address as `tab`, the first tab is open without it. Another tab drops all other
 * search parameters but `kept`.
 */
export function PageTabs({
  tabs,
  open,
  kept = {},
}: {
  tabs: readonly PageTab[];
  open: string | undefined;
  kept?: object;
}) {
  const navigate = useNavigate();
  const [first] = tabs;
  const current = tabs.find(({ name }) => name === open) ?? first;
  return (
    <Tabs
      value={current?.name ?? null}
      onChange={(next) =>
        void navigate({
          to: '.',
          search: { ...kept, tab: next === first?.name ? undefined : next } as never,
        })
      }
      keepMounted={false}
    >
      <TabRow open={current?.name}>
        {tabs.map(({ name, label }) => (
          <Tabs.Tab key={name} value={name}>
            {label}
          </Tabs.Tab>
        ))}
      </TabRow>
      {tabs.map(({ name, content }) => (
        <Tabs.Panel key={name} value={name}>
          {name === current?.name && content()}
        </Tabs.Panel>
      ))}
    </Tabs>
  );
}

/** If the tabs are wider than the window, the current tab is scrolled into view. */
function TabRow({ open, children }: { open: string | undefined; children: ReactNode }) {
  const row = useRef<HTMLDivElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: which one is selected stands in the row itself
  useEffect(() => {
    const list = row.current;
    if (list === null) return;
    const centre = (element: Element) => {
      const { left, width } = element.getBoundingClientRect();
      return left + width / 2;
    };
    // The observer also reports once at the start.
    const observer = new ResizeObserver(() => {
      const selected = list.querySelector('[aria-selected="true"]');
      if (selected !== null) list.scrollLeft += centre(selected) - centre(list);
    });
    observer.observe(list);
    return () => observer.disconnect();
  }, [open]);
  return (
    <Tabs.List ref={row} mb="lg" className="tabs">
      {children}
    </Tabs.List>
  );
}

/** The placeholder of the tabs and of the first two cards. */
export function LoadingTabs() {
  return (
    <Stack gap="lg" role="status" aria-label="Loading">
      <Skeleton h={38} radius="md" />
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
        <Skeleton h={270} radius="md" />
        <Skeleton h={270} radius="md" />
      </SimpleGrid>
    </Stack>
  );
}
