/** Calls of an application, each with what became of it, and when it was under way. */
import { setTimeout as sleep } from 'node:timers/promises';
import { percentile } from '../support/percentile.ts';

/**
 * - `done`: a 2xx.
 * - `refused`: a 4xx by the service. Nothing was done.
 * - `unknown`: no answer, or one that does not tell whether it was done.
 */
export type Outcome =
  | { kind: 'done'; body: unknown }
  | { kind: 'refused'; status: number; code: string }
  | { kind: 'unknown'; why: string };
type Call = { of: string; beganAt: number; tookMs: number; problem: string | undefined };

/** `mayBe`: a status that is an answer too. `giveUpMs`: of what may be asked again without a thought. */
export type Asked = {
  method: string;
  path: string;
  headers?: object;
  body?: unknown;
  mayBe?: number;
  giveUpMs?: number;
};

export type Calls = {
  /** `of` is what it is counted under. */
  make(of: string, call: Asked): Promise<Outcome>;
  /** As `make`, again and again while the nodes say that they are asked for too much: throws where it is not done then. */
  insist(of: string, call: Asked): Promise<unknown>;
  /** Runs something as a fault: what is under way meanwhile, and until `settleMs` later, is counted apart. */
  during<T>(fault: string, work: () => Promise<T>): Promise<T>;
  made: readonly Call[];
  faults: readonly Fault[];
};
type Fault = { name: string; beganAt: number; endedAt: number };

/** Twice 30 s for a refresh that is waited for, 15 s for a connection to the database, and then some for a busy machine. */
const patienceMs = 150_000;
const settleMs = 3_000;

export function openCalls({ url, key }: { url: string; key: string }): Calls {
  const made: Call[] = [];
  const faults: Fault[] = [];
  const calls: Calls = {
    made,
    faults,
    async insist(of, call) {
      for (;;) {
        const outcome = await calls.make(of, call);
        if (outcome.kind === 'done') return outcome.body;
        if (outcome.kind !== 'unknown' || !outcome.why.endsWith(' overloaded'))
          throw new Error(`${of}: ${call.method} ${call.path}: ${JSON.stringify(outcome)}`);
        await sleep(500);
      }
    },
    async make(of, { method, path, headers = {}, body, mayBe, giveUpMs }) {
      const beganAt = performance.now();
      const outcome = await ask(url + path, {
        method,
        headers: {
          authorization: `Bearer ${key}`,
          ...(body !== undefined && { 'content-type': 'application/json' }),
          ...headers,
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
        signal: AbortSignal.timeout(giveUpMs ?? patienceMs),
      });
      if (giveUpMs !== undefined && outcome.kind === 'unknown' && outcome.why === 'hung')
        outcome.why = 'given up';
      const problem =
        outcome.kind === 'unknown'
          ? outcome.why
          : outcome.kind === 'refused' && outcome.status !== mayBe
            ? `${outcome.status} ${outcome.code}`
            : undefined;
      made.push({ of, beganAt, tookMs: performance.now() - beganAt, problem });
      return outcome;
    },
    async during(name, work) {
      const fault = { name, beganAt: performance.now(), endedAt: Number.POSITIVE_INFINITY };
      faults.push(fault);
      try {
        return await work();
      } finally {
        fault.endedAt = performance.now();
      }
    },
  };
  return calls;
}

async function ask(url: string, init: RequestInit): Promise<Outcome> {
  try {
    const response = await fetch(url, init);
    const text = await response.text();
    if (response.ok) return { kind: 'done', body: text === '' ? undefined : JSON.parse(text) };
    if (response.headers.get('x-balancer') !== null) return { kind: 'unknown', why: 'no answer' };
    const code = codeIn(text) ?? 'no code';
    if (response.status >= 500) return { kind: 'unknown', why: `${response.status} ${code}` };
    return { kind: 'refused', status: response.status, code };
  } catch (error) {
    if ((error as Error).name === 'TimeoutError') return { kind: 'unknown', why: 'hung' };
    return { kind: 'unknown', why: 'broken off' };
  }
}

function codeIn(text: string): string | undefined {
  try {
    const { error } = JSON.parse(text) as { error?: { code?: unknown; status?: unknown } };
    return error === undefined ? undefined : String(error.code ?? error.status);
  } catch {
    return undefined;
  }
}

/**
 * From the end of a fault until the last call of those that nobody was there for: how long it was felt before the next one
 * began. 0 where there was none after it.
 */
export function recoveryMs({ made, faults }: Pick<Calls, 'made' | 'faults'>, fault: Fault): number {
  const next = faults[faults.indexOf(fault) + 1]?.beganAt ?? Number.POSITIVE_INFINITY;
  const failed = made
    .filter(({ problem, beganAt }) => isOfFault(problem) && beganAt > fault.beganAt && beganAt < next)
    .map(({ beganAt, tookMs }) => beganAt + tookMs - fault.endedAt);
  return Math.round(Math.max(0, ...failed));
}

/** Not that a grant was lost (424), nor that somebody had no patience for the lease of a refresh whose node was killed. */
const isOfFault = (problem: string | undefined) => /^(no answer|broken off|hung|50\d)/.test(problem ?? '');

export type Rates = {
  of: string;
  calls: number;
  p50: number;
  p99: number;
  /** Of the calls within fault windows, and of the others. */
  failedIn: string;
  failedOut: string;
  problems: Record<string, number>;
};

/** A line for each kind of call. */
export function ratesOf({ made, faults }: Pick<Calls, 'made' | 'faults'>): Rates[] {
  const isIn = ({ beganAt, tookMs }: Call) =>
    faults.some((fault) => beganAt < fault.endedAt + settleMs && beganAt + tookMs > fault.beganAt);
  const share = (calls: readonly Call[]) => {
    const failed = calls.filter(({ problem }) => problem !== undefined).length;
    return `${failed}/${calls.length}`;
  };
  return [...Map.groupBy(made, ({ of }) => of)].map(([of, calls]) => {
    const times = calls.map(({ tookMs }) => tookMs).sort((a, b) => a - b);
    const problems: Record<string, number> = {};
    for (const { problem } of calls)
      if (problem !== undefined) problems[problem] = (problems[problem] ?? 0) + 1;
    return {
      of,
      calls: calls.length,
      problems,
      p50: Math.round(percentile(times, 0.5)),
      p99: Math.round(percentile(times, 0.99)),
      failedIn: share(calls.filter(isIn)),
      failedOut: share(calls.filter((call) => !isIn(call))),
    };
  });
}
