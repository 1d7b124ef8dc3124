/**
 * Faults that are switched on: which, for whom, how often, until when, and what they do to an answer.
 *
 * The table of the cases themselves is cases.ts; a case that the code of an endpoint acts out itself ("special")
 * is asked for there by name.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Clock } from '../clock.ts';
import { type About, type Incoming, RESET, type Reply } from '../http.ts';
import type { FaultPoint } from './case.ts';
import { caseOf, type FaultName } from './cases.ts';

/** A fault switched on. It strikes until it is cleared, or `timesLeft` more times, or until `until`. */
export interface Fault {
  id: string;
  name: FaultName;
  /** Only this account (`sub`); absent: all. */
  sub?: string;
  /** Only this client; absent: all. */
  clientId?: string;
  timesLeft?: number;
  /** Strikes the n-th request that fits, the 2n-th and so on; absent: each. */
  every?: number;
  /** When it ends by itself, in milliseconds of the sandbox's clock. */
  until?: number;
  /** How long a slow answer takes, in real milliseconds: callers' time-outs run on real time. */
  delayMs: number;
  /** How many requests fitted, struck or (with `every`) let through. */
  seen: number;
  /** How often it has struck. */
  struck: number;
}

/** What a fault is to be: `forSeconds` by the sandbox's clock. */
interface WantedFault {
  name: FaultName;
  sub?: string | undefined;
  clientId?: string | undefined;
  times?: number | undefined;
  every?: number | undefined;
  forSeconds?: number | undefined;
  delayMs?: number | undefined;
}

/** How many faults may be in force at once. */
export const FAULT_LIMIT = 1000;
const SLOW_MS = 30_000;
/** The longest wait a timer takes (about 25 days): nobody is still there by then. */
const FOREVER_MS = 2 ** 31 - 1;

/** The faults in force, oldest first; the oldest that fits a request strikes. */
export class Faults {
  #clock: Clock;
  #faults: Fault[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  list(): Fault[] {
    this.#faults = this.#faults.filter(({ until }) => until === undefined || until > this.#clock.now());
    return [...this.#faults];
  }

  add(wanted: WantedFault): Fault {
    const { name, sub, clientId, times, every, forSeconds, delayMs } = wanted;
    const fault: Fault = {
      id: randomUUID(),
      name,
      ...(sub === undefined ? {} : { sub }),
      ...(clientId === undefined ? {} : { clientId }),
      ...(times === undefined ? {} : { timesLeft: times }),
      ...(every === undefined ? {} : { every }),
      ...(forSeconds === undefined ? {} : { until: this.#clock.now() + forSeconds * 1000 }),
      delayMs: delayMs ?? SLOW_MS,
      seen: 0,
      struck: 0,
    };
    this.#faults.push(fault);
    return fault;
  }

  /** Switches off the faults that fit everything given; all of them where nothing is. Answers how many. */
  clear(which: { id?: string | undefined; name?: FaultName | undefined; sub?: string | undefined }): number {
    const before = this.list().length;
    this.#faults = this.#faults.filter(
      (fault) =>
        (which.id !== undefined && fault.id !== which.id) ||
        (which.name !== undefined && fault.name !== which.name) ||
        (which.sub !== undefined && fault.sub !== which.sub),
    );
    return before - this.#faults.length;
  }

  /** Whether this special fault strikes now; uses up one of its times and notes it in `about`. */
  strikes(name: FaultName, about: About): boolean {
    return this.#take((fault) => fault.name === name, about) !== undefined;
  }

  /** The fault that replaces, delays or breaks an answer at these points, if any; uses up one of its times. */
  takeAt(points: FaultPoint[], about: About): Fault | undefined {
    return this.#take(({ name }) => {
      const { point, effect } = caseOf(name);
      return points.includes(point) && effect.kind !== 'special';
    }, about);
  }

  #take(fits: (fault: Fault) => boolean, about: About): Fault | undefined {
    for (const fault of this.list()) {
      if (!fits(fault)) continue;
      if (fault.sub !== undefined && fault.sub !== about.sub) continue;
      if (fault.clientId !== undefined && fault.clientId !== about.clientId) continue;
      fault.seen += 1;
      if (fault.every !== undefined && fault.seen % fault.every !== 0) continue;
      fault.struck += 1;
      about.faults.push(fault.name);
      if (fault.timesLeft !== undefined) {
        fault.timesLeft -= 1;
        if (fault.timesLeft === 0) this.#faults = this.#faults.filter((other) => other !== fault);
      }
      return fault;
    }
    return undefined;
  }
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
  const wait = (ms: number) => delay(ms, undefined, { signal: at.signal });
  switch (effect.kind) {
    case 'answer':
      return effect.reply({ projectNumber: at.projectNumber });
    case 'alter':
      return effect.alter(await at.work());
    case 'hang':
      await wait(FOREVER_MS);
      return RESET;
    case 'reset':
      return RESET;
    case 'slow':
      await wait(fault.delayMs);
      return at.work();
    case 'slow_after': {
      const reply = await at.work();
      await wait(fault.delayMs);
      return reply;
    }
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
