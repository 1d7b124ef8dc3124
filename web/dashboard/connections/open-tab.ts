/**
 * A tab that is opened by the click, because browsers block tabs that are opened after a response, and that is
 * navigated later. Its page has no access to this one. If tabs are blocked, `show` does nothing, so the link must also
 * be visible.
 */
export function openTab(): { show: (address: string) => void; close: () => void } {
  const tab = window.open('about:blank', '_blank');
  if (tab !== null) tab.opener = null;
  return { show: (address) => tab?.location.replace(address), close: () => tab?.close() };
}
