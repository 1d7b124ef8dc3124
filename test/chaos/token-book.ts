/**
 * Who asked the provider for new tokens, with which, and what became of it. Pure: by its clock alone.
 *
 * A refresh is double where a token goes to the provider again although what it brought was, or could have been, kept:
 *
 * - the first request with it is under way still, and its node has not stopped since it began;
 * - its answer came, and its node ran on for long enough to store it, or somebody has sent its successor since;
 * - its successor was accepted in the meantime, and what that brought was kept.
 *
 * None are, and counted each: a token whose answer came while its node was being killed or stood still, or on a
 * connection that was broken (`excused`); and the token before one that was just refused to the same node, whose grant
 * may have gone with such an answer (`lastLooks`). A database that is away excuses nobody: a node that lives holds the
 * answer until it is back. A request that was broken, or answered without tokens, may be made again: nobody was given
 * anything.
 */
export type Ask = { node: string; token: string };
export type Answered = { successor: string | undefined; isAccepted: boolean; isDelivered: boolean };
export type Note = { answered(outcome: Answered): void };

type Entry = {
  node: string;
  /** How many stops of its node were over when it began. */
  life: number;
  outcome: (Answered & { at: number }) | undefined;
};
type Fate = 'under way' | 'broken' | 'refused' | 'kept' | 'lost';

export type Book = {
  /** The node was killed or stands still: what it holds may be lost. */
  stopped(node: string): void;
  /** It stands still no more, or another process takes its place. */
  goesOn(node: string): void;
  asked(ask: Ask): Note;
  told(): Told;
};
export type Told = {
  asked: number;
  accepted: number;
  refused: number;
  /** Answers that nobody was there to take, and requests with a token that had been accepted before. */
  lost: number;
  repeated: number;
  /** Of those repeated: after an answer that was lost, and after a refusal of the successor. */
  excused: number;
  lastLooks: number;
  double: string[];
};

/** As long as a lease lasts beyond the request: to store the answer. */
const storeMs = 5_000;

export function openBook(clock = () => performance.now()): Book {
  const entries = new Map<string, Entry[]>();
  const stops = new Map<string, { at: number; isOver: boolean }[]>();
  const counts = { asked: 0, accepted: 0, refused: 0, lost: 0, repeated: 0, excused: 0, lastLooks: 0 };
  const double: string[] = [];
  const stopsOf = (node: string) => stops.get(node) ?? [];
  // A request that is read only after its node was stopped was sent before.
  const lifeOf = (node: string) => stopsOf(node).filter(({ isOver }) => isOver).length;

  function fateOf({ node, life, outcome }: Entry): Fate {
    const stoppedAt = stopsOf(node)[life]?.at;
    if (outcome === undefined) return stoppedAt === undefined ? 'under way' : 'lost';
    const { successor, isAccepted, isDelivered, at } = outcome;
    if (!isAccepted) return isDelivered ? 'refused' : 'broken';
    if (successor !== undefined && entries.has(successor)) return 'kept';
    return isDelivered && (stoppedAt === undefined || stoppedAt > at + storeMs) ? 'kept' : 'lost';
  }

  /** What is wrong with sending it again; undefined where nothing is. */
  function faultIn(before: Entry, { node, token }: Ask): string | undefined {
    const fate = fateOf(before);
    if (fate === 'under way') return 'two requests with one token at once';
    if (!before.outcome?.isAccepted) return undefined;
    counts.repeated += 1;
    const { successor } = before.outcome;
    if (successor === undefined || successor === token) return undefined;
    const after = entries.get(successor) ?? [];
    if (after.some((one) => fateOf(one) === 'kept')) return 'a token after its successor';
    const life = lifeOf(node);
    const isRefused = after.some(
      (one) => one.node === node && one.life === life && fateOf(one) === 'refused',
    );
    if (isRefused) counts.lastLooks += 1;
    else if (fate === 'kept') return 'a token whose answer had come';
    else counts.excused += 1;
    return undefined;
  }

  function historyOf(token: string | undefined): string {
    const all = (token !== undefined && entries.get(token)) || [];
    return all.map((one) => `${one.node} (${fateOf(one)})`).join(', ') || 'nobody';
  }

  return {
    stopped: (node) => void stops.set(node, [...stopsOf(node), { at: clock(), isOver: false }]),
    goesOn(node) {
      for (const stop of stopsOf(node)) stop.isOver = true;
    },
    asked(ask) {
      counts.asked += 1;
      const { node, token } = ask;
      const known = entries.get(token) ?? [];
      for (const before of known) {
        const fault = faultIn(before, ask);
        if (fault === undefined) continue;
        const later = historyOf(before.outcome?.successor);
        double.push(`${fault}: ${before.node}, then ${node}; its successor: ${later}`);
      }
      const entry: Entry = { node, life: lifeOf(node), outcome: undefined };
      entries.set(token, [...known, entry]);
      return {
        answered(outcome) {
          entry.outcome = { ...outcome, at: clock() };
          if (outcome.isAccepted) counts.accepted += 1;
          else if (outcome.isDelivered) counts.refused += 1;
          if (outcome.isAccepted && !outcome.isDelivered) counts.lost += 1;
        },
      };
    },
    told: () => ({ ...counts, double: [...double] }),
  };
}
