import { type RefObject, useEffect, useRef } from 'react';

/**
 * For the heading of a step: it receives the focus if the user has come from another step, whose button no longer exists.
 * The first step leaves the focus at the start of the page.
 */
export function useHeading(): RefObject<HTMLHeadingElement | null> {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    if (navigator.userActivation?.hasBeenActive) heading.current?.focus();
  }, []);
  return heading;
}
