/**
 * Benchmarks by name: `npm run bench -- [names] [--rounds n] [--quick]`; all of them without a name.
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
};

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { rounds: { type: 'string', default: '3' }, quick: { type: 'boolean', default: false } },
});
const rounds = Number(values.rounds);
const unknown = positionals.filter((name) => benchmarks[name] === undefined);
if (unknown.length > 0 || !(Number.isInteger(rounds) && rounds > 0)) {
  console.error(`usage: npm run bench -- [${Object.keys(benchmarks).join('] [')}] [--rounds 3] [--quick]`);
  process.exit(2);
}

const { server, stop } = await startTestServer();
const others = await makeTemplateOfOthers(server);
try {
  for (const [name, { about, run, isWithoutOthers }] of Object.entries(benchmarks)) {
    if (positionals.length > 0 && !positionals.includes(name)) continue;
    for (const template of isWithoutOthers ? [server.template] : [server.template, others.template]) {
      handOver({ ...server, template });
      console.log(
        `${name}${template === others.template ? ', beside a million records of others' : ''}: ${about}`,
      );
      await run({ rounds, scale: values.quick ? 'quick' : 'full' });
    }
  }
} finally {
  await others.drop();
  await stop();
}
