import { Tabs } from '@mantine/core';
import { type ReactNode, useEffect, useRef } from 'react';

/** The tabs of a page. If they are wider than the window, the current tab is scrolled into view. */
export function TabRow({ open, children }: { open: string | undefined; children: ReactNode }) {
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
