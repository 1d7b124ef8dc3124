/** What a node costs that nobody calls: its memory, that of its PostgreSQL, and its processes of customer code. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { readServerFile } from '../server/db/embedded/server.ts';
import { functionProcessesOf, type Taken, takenBy } from '../test/support/processes.ts';
import { startRunningService } from '../test/support/service.ts';
import { type Benchmark, type BenchOptions, median, report } from './support.ts';

const maxServiceMb = 150;
const maxDatabaseMb = 80;

export const idleBenchmark: Benchmark = {
  isWithoutOthers: true,
  about: 'a node with an embedded database that nobody calls; PSS counts pages that processes share once',
  run: measureIdle,
};

type Idle = { service: Taken; database: number; backends: number; functions: number; cpuShare: number };

async function measureIdle({ rounds, scale }: BenchOptions): Promise<void> {
  const restMs = scale === 'quick' ? 20_000 : 180_000;
  const found: Idle[] = [];
  for (let round = 0; round < rounds; round += 1) found.push(await measureOnce(restMs));
  const of = (pick: (idle: Idle) => number) => median(found.map(pick));
  const mb = (value: number) => `${Math.round(value)} MB`;
  const service = of((one) => one.service.pssMb);
  const database = of((one) => one.database);
  report(`service, PSS after ${restMs / 1000} s`, mb(service), {
    ratio: service / maxServiceMb,
    must: '<= 1',
  });
  report('service, resident (PSS where it is the only Node)', mb(of((one) => one.service.rssMb)));
  report(`PostgreSQL, PSS of ${of((one) => one.backends)} processes`, mb(database), {
    ratio: database / maxDatabaseMb,
    must: '<= 1',
  });
  report('processes of functions', String(Math.max(...found.map((one) => one.functions))));
  report('service, of one core', `${(of((one) => one.cpuShare) * 100).toFixed(1)} %`);
}

async function measureOnce(restMs: number): Promise<Idle> {
  const service = await startRunningService();
  try {
    await sleep(5_000);
    const before = await takenBy(service.pid);
    await sleep(restMs);
    const after = await takenBy(service.pid);
    if (before === undefined || after === undefined)
      throw new Error('Linux alone tells the memory of a process');
    const postmaster = readServerFile(join(service.dataDir, 'postgres/data'))!.pid;
    const backends = [postmaster, ...(await childrenOf(postmaster))];
    const taken = await Promise.all(backends.map(takenBy));
    return {
      service: after,
      database: taken.reduce((sum, one) => sum + (one?.pssMb ?? 0), 0),
      backends: backends.length,
      functions: (await functionProcessesOf(service.pid)).length,
      cpuShare: (after.cpuMs - before.cpuMs) / restMs,
    };
  } finally {
    await service.stop({ keepData: false });
  }
}

async function childrenOf(pid: number): Promise<number[]> {
  const tasks = await readdir(`/proc/${pid}/task`);
  const texts = await Promise.all(
    tasks.map((task) => readFile(`/proc/${pid}/task/${task}/children`, 'utf8').catch(() => '')),
  );
  return texts.flatMap((text) => text.split(' ').filter(Boolean).map(Number));
}
