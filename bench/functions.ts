/** What isolation costs a function: the start of a run, its calls of the service, a whole sync, and what is kept for the next. */
import { measureCalls } from './functions-calls.ts';
import { measureStarts } from './functions-starts.ts';
import type { Benchmark } from './support.ts';

export const functionsBenchmark: Benchmark = {
  about:
    'runs of customer code: their start, their calls and a whole sync, beside the same without isolation',
  async run(options) {
    await measureStarts(options);
    await measureCalls(options);
  },
};
