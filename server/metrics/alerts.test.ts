// What the rules say of days that were written down, by the program that Prometheus brings for it.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { accessSync, constants, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { parse, stringify } from 'yaml';

const root = join(import.meta.dirname, '../..');
const rules = join(root, 'docs/operations/alerts.yaml');
const lacksPromtool = (process.env.PATH ?? '')
  .split(delimiter)
  .some((dir) => isProgram(join(dir, 'promtool')))
  ? false
  : 'promtool is not installed (Debian: prometheus)';

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Values as promtool has them, one a minute: `0+15x100` goes from 0 to 1500, `_x5` is no value. */
type Day = { series: Record<string, string>; fires?: readonly string[]; silent?: readonly string[] };

/** Throws unless the alert fires at these times of the day, and at those does not. */
async function judge(alert: string, { series, fires = [], silent = [] }: Day): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), 'trellis-alerts-'));
  const expr = `count by (alertname) (ALERTS{alertname="${alert}", alertstate="firing"})`;
  const exp_samples = [{ labels: `{alertname="${alert}"}`, value: 1 }];
  const day = {
    rule_files: [rules],
    evaluation_interval: '1m',
    tests: [
      {
        interval: '1m',
        input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
        promql_expr_test: [
          ...fires.map((eval_time) => ({ expr, eval_time, exp_samples })),
          ...silent.map((eval_time) => ({ expr, eval_time, exp_samples: [] })),
        ],
      },
    ],
  };
  try {
    const file = join(dir, 'day.yaml');
    await writeFile(file, stringify(day));
    await promisify(execFile)('promtool', ['test', 'rules', file]).catch((error: { stderr: string }) =>
      assert.fail(error.stderr),
    );
  } finally {
    await rm(dir, { recursive: true });
  }
}

const days = (title: string, alert: string, ...given: Day[]) =>
  test(title, { skip: lacksPromtool }, async () => {
    for (const day of given) await judge(alert, day);
  });

/** As Prometheus stores what a node tells: with the name of the scrape beside. */
const told = (name: string, labels: string, instance = 'a:3003') =>
  `${name}{job="trellis", instance="${instance}", ${labels}}`;
const jobs = (task: string, outcome = 'done') =>
  told('trellis_jobs_total', `task="${task}", outcome="${outcome}"`);
const requests = (route: string, status: number, instance?: string) =>
  told('trellis_http_request_duration_seconds_count', `route="${route}", status="${status}"`, instance);

days(
  'that no job runs is told where none ever did, where the only worker is gone, and not while one works',
  'TrellisNoJobs',
  { series: { 'up{job="trellis", instance="a:3003"}': '1x90' }, fires: ['30m'] },
  { series: { [jobs('sweep')]: '0+1x30 stale' }, silent: ['30m'], fires: ['55m', '90m'] },
  { series: { [jobs('sweep')]: '0+1x90' }, silent: ['10m', '30m', '90m'] },
);

days(
  'a refused client is told from the moment it is known, for as long as it lasts',
  'TrellisClientRefused',
  {
    series: {
      // Each node tells the same.
      [told('trellis_integrations_refused', 'provider="google"')]: '_x5 1x100 _x20',
      [told('trellis_integrations_refused', 'provider="google"', 'b:3003')]: '_x5 1x100 _x20',
    },
    silent: ['4m', '120m'],
    fires: ['6m', '20m', '60m', '100m'],
  },
);

days(
  'requests that fail are told however often probes ask, and failing probes alone are not',
  'TrellisErrors',
  {
    series: { [requests('/records', 500)]: '0+6x60', [requests('/ready', 200)]: '0+120x60' },
    fires: ['20m'],
  },
  {
    series: {
      [requests('/records', 200)]: '0+60x60',
      [requests('/ready', 503, 'w:3003')]: '0+30x60',
      [requests('/health', 503, 'w:3003')]: '0+6x60',
    },
    silent: ['20m', '60m'],
  },
);

type Node = { resources: { limits: { memory: string } } };
const values = parse(readFileSync(join(root, 'deploy/helm/trellis/values.yaml'), 'utf8')) as {
  api: Node;
  worker: Node;
};
const resident = told('process_resident_memory_bytes', 'x="x"');

days(
  'memory is told before a node of the chart reaches its limit, and not while it only works',
  'TrellisMemory',
  ...[values.api, values.worker].map(({ resources: { limits } }) => ({
    series: { [resident]: `${0.8 * Number.parseInt(limits.memory, 10) * 2 ** 30}x60` },
    fires: ['10m'],
  })),
  { series: { [resident]: `${600e6}x60` }, silent: ['10m', '60m'] },
);

days(
  'failures of background jobs are counted for each job, and not together',
  'TrellisJobFails',
  {
    series: Object.fromEntries(['a', 'b', 'c'].map((task) => [jobs(task, 'failed'), '0x10 1x10 2x10'])),
    silent: ['31m'],
  },
  { series: { [jobs('a', 'failed')]: '0+1x40' }, fires: ['31m'] },
);

days('a node that answers no scrape is told', 'TrellisNodeDown', {
  series: { 'up{job="trellis", instance="a:3003"}': '1x10 0x20' },
  silent: ['10m'],
  fires: ['15m'],
});
