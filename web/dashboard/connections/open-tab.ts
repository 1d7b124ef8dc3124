/**
 * A tab that is opened by the click itself, since browsers block one that opens after an answer has come, and is sent to
 * its address later. The page in it cannot reach back to this one. Where tabs are blocked `show` does nothing, so the
 * link must be in sight as well.
 */
export function openTab(): { show: (address: string) => void; close: () => void } {
  const tab = window.open('about:blank', '_blank');
  if (tab !== null) tab.opener = null;
  return { show: (address) => tab?.location.replace(address), close: () => tab?.close() };
}
