import type { Judged, Only, Place } from '../ledger.ts';
import type { PeerSummary } from './answers.ts';
import { keyOf, type ListedPage } from './connections.ts';

/** What the peer lists of the integrations that are asked for: by `keyOf`, and those without a name, of whichever. */
export type Listed = { keys: Set<string>; nameless: number };

/** Those of a page that are to be asked for and those that cannot be; adds all of them to what is listed. */
export function askedOf(
  only: Only,
  { page, listed }: { page: ListedPage; listed: Listed },
): { asked: PeerSummary[]; unfit: Judged[] } {
  const asked = page.connections.filter((one) => only?.has(one.provider_config_key) ?? true);
  const unfit = page.unfit.filter((one) => only?.has(one.integration) ?? true);
  for (const one of asked) listed.keys.add(keyOf(one));
  for (const one of unfit) listed.keys.add(keyOfPlace(one));
  listed.nameless += page.nameless;
  return { asked, unfit };
}

/** For a person; none where all have a name. */
export function doubtsOf({ nameless }: Listed): string[] {
  if (nameless === 0) return [];
  return [
    `The peer lists ${nameless} connections without saying what they are called, so they are not here, and what is gone there is not known.`,
  ];
}

export function isIn(listed: ReadonlySet<string>): (place: Place) => boolean {
  return (place) => listed.has(keyOfPlace(place));
}

export function keyOfPlace({ integration, connection }: Place): string {
  return keyOf({ provider_config_key: integration, connection_id: connection });
}
