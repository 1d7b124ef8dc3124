/**
 * Gives an element its focus back. If it is gone, and no other part of the page has received the focus, the page gets it, so
 * that the keyboard goes on from there.
 */
export function returnFocus(former: Element | null): void {
  if (former instanceof HTMLElement && former.isConnected && former !== document.body) {
    former.focus({ preventScroll: true });
  } else if (!document.activeElement?.closest('main, header, nav, [role=dialog]')) {
    document.querySelector<HTMLElement>('main')?.focus({ preventScroll: true });
  }
}
