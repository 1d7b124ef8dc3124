import { type RefObject, useLayoutEffect, useRef } from 'react';

/**
 * For a part of a page that replaces or disables the button that the user has just used: at each change of `state` the part
 * receives the focus if nothing else has it. It needs a `tabIndex` of -1. Browsers without `userActivation`, such as Firefox before
 * 120, leave the focus where it is.
 */
export function useFocusIfLost<T extends HTMLElement>(state: unknown): RefObject<T | null> {
  const part = useRef<T>(null);
  const former = useRef(state);
  useLayoutEffect(() => {
    if (former.current === state) return;
    former.current = state;
    if (document.activeElement === document.body && navigator.userActivation?.hasBeenActive)
      part.current?.focus({ preventScroll: true });
  }, [state]);
  return part;
}
