/**
 * Who asked the provider for new tokens, with which, and what became of it. Pure: judged by what came after what, by no
 * clock.
 *
 * A refresh is double where a token goes to the provider again although the node that had its successor could have kept it:
 *
 * - the first request with it is under way still, and its node neither was killed nor stood still since it began;
 * - its answer went out, and the node that got it neither was killed nor stood still since;
 * - its successor was accepted in the meantime, and what that brought was kept: whatever became of any node.
 *
 * Where it was not kept the grant is lost, and to try the token before is a last look whether it is. A request that was broken, or answered without tokens, may be made again: nobody was given anything.
 */
export type Ask = { node: string; token: string };
export type Answered = { successor: string | undefined; isAccepted: boolean; isDelivered: boolean };
export type Note = { answered(outcome: Answered): void };

type Entry = { node: string; life: number; outcome: Answered | undefined };

export type Book = {
  /** The node was killed or stands still: what it held may be lost. */
  disturbed(node: string): void;
  asked(ask: Ask): Note;
  told(): Told;
};
export type Told = {
  asked: number;
  accepted: number;
  refused: number;
  /** Answers that nobody was there to take, and requests that were made again after one. */
  lost: number;
  repeated: number;
  double: string[];
};

export function openBook(): Book {
  const entries = new Map<string, Entry[]>();
  const lives = new Map<string, number>();
  const told: Told = { asked: 0, accepted: 0, refused: 0, lost: 0, repeated: 0, double: [] };
  const lifeOf = (node: string) => lives.get(node) ?? 0;

  /** It was accepted, and what came of it is in use or with a node that could keep it. */
  const isUsedUp = (token: string) =>
    entries.get(token)?.some(({ outcome, node, life }) => {
      if (!outcome?.isAccepted) return false;
      const isInUse = outcome.successor !== undefined && entries.has(outcome.successor);
      return isInUse || (outcome.isDelivered && lifeOf(node) === life);
    });

  function judge({ node, token }: Ask): void {
    for (const before of entries.get(token) ?? []) {
      const isAsBefore = lifeOf(before.node) === before.life;
      const whose = `${before.node}, then ${node}`;
      if (before.outcome === undefined) {
        if (isAsBefore) told.double.push(`two requests with one token at once: ${whose}`);
        continue;
      }
      const { successor, isAccepted, isDelivered } = before.outcome;
      if (!isAccepted) continue;
      told.repeated += 1;
      if (successor !== undefined && successor !== token && isUsedUp(successor))
        told.double.push(`a token after its successor: ${whose}`);
      else if (isDelivered && isAsBefore && successor !== token)
        told.double.push(`a token whose answer had come: ${whose}`);
    }
  }

  return {
    disturbed: (node) => void lives.set(node, lifeOf(node) + 1),
    asked(ask) {
      told.asked += 1;
      judge(ask);
      const entry: Entry = { node: ask.node, life: lifeOf(ask.node), outcome: undefined };
      entries.set(ask.token, [...(entries.get(ask.token) ?? []), entry]);
      return {
        answered(outcome) {
          entry.outcome = outcome;
          if (outcome.isAccepted) told.accepted += 1;
          else if (outcome.isDelivered) told.refused += 1;
          if (outcome.isAccepted && !outcome.isDelivered) told.lost += 1;
        },
      };
    },
    told: () => ({ ...told, double: [...told.double] }),
  };
}
