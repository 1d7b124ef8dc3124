/**
 * Who asked the provider for new tokens, with which, and what became of it. Pure: by its clock alone.
 *
 * A refresh is double where a token goes to the provider again although what it brought was, or could have been, kept:
 *
 * - the first request with it is under way still, and its node has not been stopped since it began;
 * - its node was stopped, and its lease cannot have ended yet;
 * - its answer came, and its node ran on for long enough to store it, or somebody has sent its successor since;
 * - its successor was accepted in the meantime, and what that brought was kept.
 *
 * None are, and counted each: a token whose answer was lost with its node that was killed or stood still, once
 * (`excused`); and the token before one whose answer was lost so, once after each time that one is refused
 * (`lastLooks`). A database that is away excuses nobody: a node that lives holds the answer until it is back. A request
 * that was broken, or answered without tokens, may be made again: nobody was given anything. Tokens that a living node
 * broke off to take are told apart (`brokenOff`): nothing here breaks connections to the provider.
 */
type Ask = { node: string; token: string };
/** `error` is the code of an answer without tokens (RFC 6749 §5.2). */
type Answered = {
  successor: string | undefined;
  error: string | undefined;
  isAccepted: boolean;
  isDelivered: boolean;
};
type Note = { answered(outcome: Answered): void };
/** How long a lease lasts, and its part for storing the answer. */
export type LeaseTiming = { leaseMs: number; storeMs: number };

/** One life of a node. */
type Process = { stops: { at: number; overAt: number | undefined }[] };
type Entry = {
  node: string;
  token: string;
  process: Process;
  askedAt: number;
  outcome: (Answered & { at: number; isCutShort: boolean }) | undefined;
  /** The request that was excused by the loss of this one's answer. */
  excused: Entry | undefined;
  isLookedBehind: boolean;
};
type EntryState = 'under way' | 'broken' | 'refused' | 'kept' | 'lost';

export type Book = {
  /** The node is being killed, or stands still: what it holds may be lost. */
  stopped(node: string): void;
  /** The same process runs on. */
  goesOn(node: string): void;
  /** Its process is gone, and all of its requests have been noted: the next one is another's. */
  ended(node: string): void;
  asked(ask: Ask): Note;
  told(): Told;
};
export type Told = {
  asked: number;
  accepted: number;
  refused: number;
  underWay: number;
  /** How often nodes were killed or stood still. */
  stops: number;
  /** Answers that nobody was there to take, and requests with a token that had been accepted before. */
  lost: number;
  repeated: number;
  /** Of those repeated: after an answer that was lost, and after a refusal of the successor. */
  excused: number;
  lastLooks: number;
  double: string[];
  brokenOff: string[];
};

/** A lease begins when the database gives it; the request under it is noted here, on a busy machine a while later. */
const slackMs = 2_000;

export function openBook(
  { leaseMs, storeMs }: LeaseTiming,
  clock: () => number = () => performance.now(),
): Book {
  const entries = new Map<string, Entry[]>();
  /** By each of its tokens: the requests of a grant, in their order. */
  const grants = new Map<string, Entry[]>();
  const processes = new Map<string, Process>();
  const counts = {
    asked: 0,
    accepted: 0,
    refused: 0,
    stops: 0,
    lost: 0,
    repeated: 0,
    excused: 0,
    lastLooks: 0,
  };
  const double: string[] = [];
  const brokenOff: string[] = [];

  function processOf(node: string): Process {
    const process = processes.get(node) ?? { stops: [] };
    processes.set(node, process);
    return process;
  }

  /** Whether it was stopped in that time, and has not run on for long enough since to store an answer. */
  function isCutShort({ stops }: Process, { from, to }: { from: number; to: number }): boolean {
    return stops.some(
      ({ at, overAt = Number.POSITIVE_INFINITY }) => at <= to && overAt > from && clock() < overAt + storeMs,
    );
  }

  /** Whether its node has the outcome, and has put it down by now or will. */
  function isHeard({ process, outcome }: Entry): boolean {
    if (!outcome?.isDelivered) return false;
    return !isCutShort(process, { from: outcome.at, to: outcome.at + storeMs });
  }

  function stateOf(entry: Entry): EntryState {
    const { process, askedAt, outcome } = entry;
    if (outcome === undefined)
      return isCutShort(process, { from: askedAt, to: Number.POSITIVE_INFINITY }) ? 'lost' : 'under way';
    const { successor, isAccepted, isDelivered } = outcome;
    if (!isAccepted) return isDelivered ? 'refused' : 'broken';
    if ((successor !== undefined && entries.has(successor)) || isHeard(entry)) return 'kept';
    return isDelivered || outcome.isCutShort ? 'lost' : 'broken';
  }

  const isDead = ({ outcome }: Entry) => outcome?.error === 'invalid_grant' && outcome.isDelivered;

  /**
   * The refusal that a look at the token before is owed to: of the successor, whose answer was lost, by the same node
   * under the same lease. None but this node has asked with the grant since.
   */
  function refusalBefore(entry: Entry, successor: string): Entry | undefined {
    const earlier = (grants.get(entry.token) ?? []).filter((one) => one !== entry);
    const other = earlier.findLastIndex(
      (one) => one.process !== entry.process || !isDead(one) || clock() - (one.outcome?.at ?? 0) > leaseMs,
    );
    const ofSuccessor = entries.get(successor) ?? [];
    if (!ofSuccessor.some((one) => stateOf(one) === 'lost')) return undefined;
    return earlier.slice(other + 1).find((one) => one.token === successor && !one.isLookedBehind);
  }

  /** What is wrong with sending it again; undefined where nothing is. */
  function faultIn(before: Entry, again: Entry): string | undefined {
    const state = stateOf(before);
    const { outcome } = before;
    if (state === 'under way') return 'two requests with one token at once';
    if (outcome?.isAccepted) counts.repeated += 1;
    if (outcome?.isAccepted && outcome.successor === again.token) return undefined;
    if (state === 'lost' && again.askedAt - before.askedAt < leaseMs - slackMs)
      return 'a token again within the lease';
    if (!outcome?.isAccepted) return undefined;
    const { successor } = outcome;
    const after = (successor !== undefined && entries.get(successor)) || [];
    if (after.some((one) => stateOf(one) === 'kept')) return 'a token after its successor';
    const refusal = successor === undefined ? undefined : refusalBefore(again, successor);
    if (refusal !== undefined) {
      refusal.isLookedBehind = true;
      counts.lastLooks += 1;
      return undefined;
    }
    if (state === 'kept') return 'a token whose answer had come';
    return state === 'lost' ? excuse(before, again) : undefined;
  }

  /** Once: until somebody knows what the provider says to the token now. */
  function excuse(before: Entry, again: Entry): string | undefined {
    const { excused } = before;
    if (excused === undefined) counts.excused += 1;
    else if (isHeard(excused) && (excused.outcome?.isAccepted || isDead(excused)))
      return 'a token whose lost answer had been asked for again';
    before.excused = again;
    return undefined;
  }

  function historyOf(token: string | undefined): string {
    const all = (token !== undefined && entries.get(token)) || [];
    return all.map((one) => `${one.node} (${stateOf(one)})`).join(', ') || 'nobody';
  }

  function answer(entry: Entry, outcome: Answered): void {
    const { node, process, token, askedAt } = entry;
    const at = clock();
    const isCut = isCutShort(process, { from: askedAt, to: at });
    entry.outcome = { ...outcome, at, isCutShort: isCut };
    const { successor, isAccepted, isDelivered } = outcome;
    if (isAccepted) counts.accepted += 1;
    else if (isDelivered) counts.refused += 1;
    if (successor !== undefined) grants.set(successor, grants.get(token)!);
    if (!isAccepted || isDelivered) return;
    counts.lost += 1;
    if (!isCut) brokenOff.push(`${node}, ${Math.round(at - askedAt)} ms after it asked`);
  }

  return {
    stopped(node) {
      counts.stops += 1;
      processOf(node).stops.push({ at: clock(), overAt: undefined });
    },
    goesOn(node) {
      for (const stop of processOf(node).stops) stop.overAt ??= clock();
    },
    ended: (node) => void processes.delete(node),
    asked({ node, token }) {
      counts.asked += 1;
      const entry: Entry = {
        node,
        token,
        process: processOf(node),
        askedAt: clock(),
        outcome: undefined,
        excused: undefined,
        isLookedBehind: false,
      };
      const known = entries.get(token) ?? [];
      for (const before of known) {
        const fault = faultIn(before, entry);
        if (fault === undefined) continue;
        const later = historyOf(before.outcome?.successor);
        double.push(`${fault}: ${before.node}, then ${node}; its successor: ${later}`);
      }
      entries.set(token, [...known, entry]);
      const grant = grants.get(token) ?? [];
      grant.push(entry);
      grants.set(token, grant);
      return { answered: (outcome) => answer(entry, outcome) };
    },
    told: () => ({
      ...counts,
      underWay: [...entries.values()].flat().filter((one) => stateOf(one) === 'under way').length,
      double: [...double],
      brokenOff: [...brokenOff],
    }),
  };
}
