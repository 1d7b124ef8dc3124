import { cellsAhead, type Priority, type Rule, type SlidingWindow } from './sliding-window.ts';

/** What a node wants of a book. */
export type Want = {
  /** For each lane that waits and has no token yet. */
  readonly lanes: number;
  /** Beyond that: for who waits behind the first of a lane, and for calls as they came lately. */
  readonly spare: number;
};

type Portion = {
  readonly priority: Priority;
  /** How many for which cell. */
  readonly tokens: ReadonlyMap<number, number>;
  /** Whether some lanes got none: asking again is no use before the next cell. */
  readonly isShort: boolean;
};

/**
 * Takes a node's portion. Interactive lanes get tokens of cells that are still to come where this one has none left;
 * a background lane only what is free now, so that it never stands before an interactive call that comes later. Where
 * all lanes have theirs at once, a quarter of what is left at most goes along, so that other nodes find some.
 */
export function takePortion(
  window: SlidingWindow,
  given: { rule: Rule; priority: Priority; cell: number; want: Want },
): Portion {
  const { rule, priority, cell, want } = given;
  const to = priority === 'interactive' ? cell + cellsAhead : cell;
  const tokens = window.take({ rule, priority, from: cell, to, want: want.lanes });
  let taken = 0;
  for (const count of tokens.values()) taken += count;
  const now = tokens.get(cell) ?? 0;
  if (want.lanes > 0 && now === want.lanes) {
    const left = Math.floor(window.allowance(rule, { priority, cell }) / 4);
    const spare = window.take({ rule, priority, from: cell, to: cell, want: Math.min(want.spare, left) });
    tokens.set(cell, now + (spare.get(cell) ?? 0));
  }
  return { priority, tokens, isShort: taken < want.lanes };
}
