import { counted } from '../../ui/size.ts';

/** What a policy does, as far as words need it. */
export type PolicyTerms = {
  prune_after_days: number | null;
  remove_tombstones_after_days: number | null;
  wait_for_consumers: boolean;
};

/** A policy in whole sentences, what goes first. */
export function wordsOf({
  prune_after_days: prune,
  remove_tombstones_after_days: remove,
  wait_for_consumers: waits,
}: PolicyTerms): string[] {
  if (prune === null && remove === null) return ['Nothing goes by age.'];
  const words: string[] = [];
  if (prune !== null) {
    words.push(
      `Payloads go ${counted(prune, 'day')} after their record last changed. IDs, times and cursors stay; only saving a changed record brings a payload back.`,
    );
  }
  if (remove !== null) {
    words.push(
      `Records that were deleted more than ${counted(remove, 'day')} ago are removed completely. A client that follows changes and stays away longer has to start again.`,
    );
  }
  words.push(
    waits
      ? 'Nothing goes before every consumer of its dataset has taken it, unless that one is silent for 30 days.'
      : 'It waits for nobody: what a consumer has not read by then it never sees.',
  );
  return words;
}
