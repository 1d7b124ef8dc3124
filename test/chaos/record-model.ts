/** What one dataset may hold, as its only writer knows it: more than one state where an answer was lost. Pure. */

/** `part` is what an update added. */
export type State = { version: number; part: number; isDeleted: boolean; isPruned: boolean } | undefined;
type Change = (state: State) => State;

type RecordModel = {
  /** The change was made to each of the ids. */
  done(ids: Iterable<string>, change: Change): void;
  /** It was made to all of them, or to none. */
  unsure(ids: Iterable<string>, change: Change): void;
  /** What is wrong with records that stand, by id; an empty list where each is as it may be. */
  faults(standing: ReadonlyMap<string, State>): string[];
  size(): number;
};

export const saved =
  (version: number): Change =>
  () => ({ version, part: 0, isDeleted: false, isPruned: false });
/** A pruned record has nothing to merge into, and a deleted one stays as it is. */
export const updated =
  (part: number): Change =>
  (state) =>
    state === undefined || state.isDeleted || state.isPruned ? state : { ...state, part };
export const deleted: Change = (state) => state && { ...state, isDeleted: true };
export const pruned: Change = (state) => state && { ...state, isPruned: true };

export function openModel(): RecordModel {
  const possible = new Map<string, State[]>();
  const of = (id: string) => possible.get(id) ?? [undefined];
  return {
    done(ids, change) {
      for (const id of ids) possible.set(id, distinct(of(id).map(change)));
    },
    unsure(ids, change) {
      for (const id of ids) possible.set(id, distinct([...of(id), ...of(id).map(change)]));
    },
    faults(standing) {
      const ids = new Set([...possible.keys(), ...standing.keys()]);
      return [...ids].flatMap((id) => {
        const found = textOf(standing.get(id));
        const may = of(id).map(textOf);
        return may.includes(found) ? [] : [`${id}: ${found}, and not ${may.join(' or ')}`];
      });
    },
    size: () => possible.size,
  };
}

/** The content of a pruned record cannot be seen. */
function textOf(state: State): string {
  if (state === undefined) return 'absent';
  const { version, part, isDeleted, isPruned } = state;
  return `${isDeleted ? 'deleted ' : ''}${isPruned ? 'pruned' : `${version}/${part}`}`;
}

function distinct(states: State[]): State[] {
  return [...new Map(states.map((state) => [JSON.stringify(state), state])).values()];
}
