/**
 * Benchmarks by name: `npm run bench -- [names] [--rounds n] [--quick]`; all of them without a name. `growth` also has
 * `--records n` and `--steps n`.
 *
 * Each prints its figures beside a floor that was measured in the same run, in turns. Ratios to the floor compare
 * between machines, rates do not. Linux alone tells the memory of a process.
 *
 * Each runs twice: in an empty database, and in one that holds a million records of others, with statistics of them. What
 * it saves itself no statistics know.
 */
import { parseArgs } from 'node:util';
import { handOver, startTestServer } from '../test/support/database.ts';
import { activityBenchmark } from './activity.ts';
import { functionsBenchmark } from './functions.ts';
import { growthBenchmark } from './growth.ts';
import { hostileFunctionsBenchmark } from './hostile-functions.ts';
import { idleBenchmark } from './idle.ts';
import { loadBenchmark } from './load.ts';
import { sizeBenchmark } from './load-size.ts';
import { metricsBenchmark } from './metrics.ts';
import { processesBenchmark } from './processes.ts';
import { proxyBenchmark } from './proxy.ts';
import { listBenchmark, pruneBenchmark, saveBenchmark } from './records.ts';
import { millionBenchmark } from './records-million.ts';
import { sheetsBenchmark } from './sheets.ts';
import { type Benchmark, makeTemplateOfOthers } from './support.ts';

const benchmarks: Record<string, Benchmark> = {
  save: saveBenchmark,
  list: listBenchmark,
  prune: pruneBenchmark,
  million: millionBenchmark,
  proxy: proxyBenchmark,
  processes: processesBenchmark,
  metrics: metricsBenchmark,
  activity: activityBenchmark,
  functions: functionsBenchmark,
  'hostile-functions': hostileFunctionsBenchmark,
  sheets: sheetsBenchmark,
  load: loadBenchmark,
  size: sizeBenchmark,
  idle: idleBenchmark,
  growth: growthBenchmark,
};

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: 'string', default: '3' },
    quick: { type: 'boolean', default: false },
    records: { type: 'string' },
    steps: { type: 'string' },
  },
});
const rounds = Number(values.rounds);
const sizes = {
  ...(values.records !== undefined && { records: Number(values.records) }),
  ...(values.steps !== undefined && { steps: Number(values.steps) }),
};
const unknown = positionals.filter((name) => benchmarks[name] === undefined);
if (
  unknown.length > 0 ||
  ![rounds, ...Object.values(sizes)].every((one) => Number.isInteger(one) && one > 0)
) {
  console.error(
    `usage: npm run bench -- [${Object.keys(benchmarks).join('] [')}] [--rounds 3] [--quick] [--records n] [--steps n]`,
  );
  process.exit(2);
}

const { server, stop } = await startTestServer();
const chosen = Object.entries(benchmarks).filter(
  ([name]) => positionals.length === 0 || positionals.includes(name),
);
const others = chosen.some(([, { isWithoutOthers }]) => !isWithoutOthers)
  ? await makeTemplateOfOthers(server)
  : undefined;
try {
  for (const [name, { about, run, isWithoutOthers }] of chosen) {
    for (const template of isWithoutOthers || !others
      ? [server.template]
      : [server.template, others.template]) {
      handOver({ ...server, template });
      console.log(
        `${name}${template === others?.template ? ', beside a million records of others' : ''}: ${about}`,
      );
      await run({ rounds, scale: values.quick ? 'quick' : 'full', ...sizes });
    }
  }
} finally {
  await others?.drop();
  await stop();
}
