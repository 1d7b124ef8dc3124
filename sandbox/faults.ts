/**
 * Faults that are switched on: which, for whom, how often, and what they do to an answer.
 *
 * The table of the cases themselves is fault-cases.ts.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { FAULT_CASES, type FaultCase, type FaultName, type FaultPoint } from './fault-cases.ts';
import { type Incoming, RESET, type Reply } from './http.ts';

/** A fault switched on. It strikes `timesLeft` more times, or until it is cleared where that is absent. */
export interface Fault {
  id: string;
  name: FaultName;
  /** Only this account (`sub`); absent: all. */
  sub?: string;
  /** Only this client; absent: all. */
  clientId?: string;
  timesLeft?: number;
  /** How long a slow answer takes, in real milliseconds: callers' time-outs run on real time. */
  delayMs: number;
  /** How often it has struck. */
  struck: number;
}

/** Whom a request concerns, as far as it is known at that point. */
export interface Subject {
  sub?: string | undefined;
  clientId?: string | undefined;
}

const SLOW_MS = 30_000;

/** The faults in force, oldest first; the oldest that fits a request strikes. */
export class Faults {
  #faults: Fault[] = [];

  list(): Fault[] {
    return [...this.#faults];
  }

  add(wanted: {
    name: FaultName;
    sub?: string | undefined;
    clientId?: string | undefined;
    times?: number | undefined;
    delayMs?: number | undefined;
  }): Fault {
    const fault: Fault = {
      id: randomUUID(),
      name: wanted.name,
      delayMs: wanted.delayMs ?? SLOW_MS,
      struck: 0,
    };
    if (wanted.sub !== undefined) fault.sub = wanted.sub;
    if (wanted.clientId !== undefined) fault.clientId = wanted.clientId;
    if (wanted.times !== undefined) fault.timesLeft = wanted.times;
    this.#faults.push(fault);
    return fault;
  }

  /** Switches off the faults that fit; all without a name. Answers how many. */
  clear(which: { name?: FaultName | undefined; sub?: string | undefined }): number {
    const before = this.#faults.length;
    this.#faults = this.#faults.filter(
      (fault) =>
        (which.name !== undefined && fault.name !== which.name) ||
        (which.sub !== undefined && fault.sub !== which.sub),
    );
    return before - this.#faults.length;
  }

  /** Whether this special fault strikes now; uses up one of its times. */
  strikes(name: FaultName, subject: Subject): boolean {
    return this.#take((fault) => fault.name === name, subject) !== undefined;
  }

  /** The fault that replaces, delays or breaks an answer at these points, if any; uses up one of its times. */
  takeAt(points: FaultPoint[], subject: Subject): Fault | undefined {
    return this.#take(({ name }) => {
      const { point, effect } = caseOf(name);
      return points.includes(point) && effect.kind !== 'special';
    }, subject);
  }

  #take(fits: (fault: Fault) => boolean, subject: Subject): Fault | undefined {
    const fault = this.#faults.find(
      (candidate) =>
        fits(candidate) &&
        (candidate.sub === undefined || candidate.sub === subject.sub) &&
        (candidate.clientId === undefined || candidate.clientId === subject.clientId),
    );
    if (fault === undefined) return undefined;
    fault.struck += 1;
    if (fault.timesLeft !== undefined) {
      fault.timesLeft -= 1;
      if (fault.timesLeft === 0) this.#faults = this.#faults.filter((other) => other !== fault);
    }
    return fault;
  }
}

/** The table's line of a fault. */
export function caseOf(name: FaultName): FaultCase {
  return FAULT_CASES[name];
}

/**
 * The answer of `work` as the fault leaves it; without a fault simply that of `work`.
 *
 * A slow answer throws `AbortError` as soon as the caller goes away or the sandbox closes.
 */
export async function answerUnder(
  fault: Fault | undefined,
  at: { signal: Incoming['signal']; projectNumber: string; work: () => Promise<Reply> },
): Promise<Reply> {
  if (fault === undefined) return at.work();
  const { effect } = caseOf(fault.name);
  switch (effect.kind) {
    case 'answer':
      return effect.reply({ projectNumber: at.projectNumber });
    case 'reset':
      return RESET;
    case 'slow':
      await delay(fault.delayMs, undefined, { signal: at.signal });
      return at.work();
    case 'reset_after':
      await at.work();
      return RESET;
    case 'truncate':
      return { ...(await at.work()), cut: 'halfway' };
    case 'page':
    case 'special':
      return at.work();
  }
}
