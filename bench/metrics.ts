/** What it costs a call of the proxy to be counted, to be a cause, and to be asked whether it is traced. */

import { callsInFlight } from '../server/metrics/metrics.ts';
import { CallTrace } from '../server/proxy/call-log.ts';
import { isTracing, within } from '../server/tracing/tracing.ts';
import type { Benchmark } from './support.ts';

const calls = { quick: 300_000, full: 3_000_000 } as const;

export const metricsBenchmark: Benchmark = {
  isWithoutOthers: true,
  about:
    'what a proxied call spends on being counted, on asking whether it is traced, and, where it has to wait, on being a cause',
  async run({ rounds, scale }) {
    const count = calls[scale];
    let sum = 0;
    const trace = bare();
    const end = { outcome: 'answered' } as const;
    const work = {
      counted: () => counted(trace, end),
      asked: () => (isTracing() ? sum++ : sum--),
      caused: () => within({ reqId: '019ab1e0-0000-8000-8000-000000000001' }, () => sum++),
    };
    for (let round = 0; round < rounds; round++) {
      const ns = Object.entries(work).map(([name, one]) => {
        const startedAt = performance.now();
        for (let at = 0; at < count; at++) one();
        return `${name} ${(((performance.now() - startedAt) * 1e6) / count).toFixed(0)} ns`;
      });
      console.log(`  ${ns.join(', ')}`);
    }
  },
};

/** A call that went well. */
function bare(): CallTrace {
  const trace = new CallTrace();
  trace.credentialed();
  trace.sent();
  trace.connected();
  trace.answered(200);
  trace.ended(0, 1024);
  return trace;
}

function counted(trace: CallTrace, end: { outcome: 'answered' }): void {
  callsInFlight.add();
  callsInFlight.add(-1);
  trace.count('google-sheet', end);
}
