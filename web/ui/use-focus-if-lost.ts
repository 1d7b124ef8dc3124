import { type RefObject, useLayoutEffect, useRef } from 'react';

/**
 * For a part of a page that replaces or disables the button that the user has just used: at each change of `state` the part
 * receives the focus if nothing else has it. It needs a `tabIndex` of -1. Browsers without `userActivation`, such as Firefox before
 * 120, leave the focus where it is.
 */
export function useFocusIfLost<T extends HTMLElement>(state: unknown): RefObject<T | null> {
  const part = useRef<T>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: at each change of the state
  useLayoutEffect(() => {
    if (document.activeElement === document.body && navigator.userActivation?.hasBeenActive)
      part.current?.focus({ preventScroll: true });
  }, [state]);
  return part;
}
