/**
 * The active faults, how requests match them, and how they change a response. cases.ts has the table of all faults.
 *
 * A `special` fault is implemented by the code of its endpoint, which calls `applies` with the name of the fault.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Clock } from '../clock.ts';
import { type About, type Incoming, type Reply, resetReply } from '../http.ts';
import { caseOf, type FaultName, type FaultPoint } from './cases.ts';

/** An active fault. It applies until it is cleared, `timesLeft` more times, or until `until`. */
export interface Fault {
  id: string;
  name: FaultName;
  /** The only account (`sub`); absent: all. */
  sub?: string;
  /** The only client; absent: all. */
  clientId?: string;
  timesLeft?: number;
  /** Applies to every n-th matching request; absent: to each. */
  every?: number;
  /** The end, in milliseconds of the sandbox's clock. */
  until?: number;
  /** The delay of a slow response, in real milliseconds, since the time-outs of clients use real time. */
  delayMs: number;
  /** The number of matching requests, including those that `every` skips. */
  seen: number;
  /** The number of requests it was applied to. */
  timesApplied: number;
}

/** A fault to switch on; `forSeconds` is by the sandbox's clock. */
interface WantedFault {
  name: FaultName;
  sub?: string | undefined;
  clientId?: string | undefined;
  times?: number | undefined;
  every?: number | undefined;
  forSeconds?: number | undefined;
  delayMs?: number | undefined;
}

/** The limit of active faults. */
export const faultLimit = 1000;
const slowMs = 30_000;
/** The longest delay of a timer, about 25 days. */
const foreverMs = 2 ** 31 - 1;

/** The active faults, oldest first. The oldest matching fault is applied to a request. */
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
      delayMs: delayMs ?? slowMs,
      seen: 0,
      timesApplied: 0,
    };
    this.#faults.push(fault);
    return fault;
  }

  /** Removes the faults that match all given fields (all faults if none is given). Returns their number. */
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

  /** Whether this special fault applies now; counts the use and adds the fault to `about`. */
  applies(name: FaultName, about: About): boolean {
    return this.#take((fault) => fault.name === name, about) !== undefined;
  }

  /** The fault to apply at these points, without special ones; counts the use. */
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
      fault.timesApplied += 1;
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
 * Runs `work` with a fault applied, if any.
 *
 * A delay throws `AbortError` when the client disconnects or the sandbox closes.
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
      await wait(foreverMs);
      return resetReply;
    case 'reset':
      return resetReply;
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
      return resetReply;
    case 'truncate':
      return { ...(await at.work()), cut: 'halfway' };
    case 'page':
    case 'special':
      return at.work();
  }
}
