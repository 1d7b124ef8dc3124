import { Tabs } from '@mantine/core';
import { type ReactNode, useEffect, useRef } from 'react';

/** The tabs of a page. Where they are wider than the window, the row is moved so that the open one is in sight. */
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
    // Told once at the start, too.
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
