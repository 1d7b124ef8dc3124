// In a process of its own: the figures are those of the whole process.

// What is documented, drawn and alerted on is what there is.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { parse } from 'yaml';
import {
  countRecords,
  createProcessMetrics,
  type Instrument,
  metrics,
  statusClass,
  writeMetrics,
} from './metrics.ts';

const docs = join(import.meta.dirname, '../../docs/operations');
const read = (file: string) => readFileSync(join(docs, file), 'utf8');
const all: Instrument[] = Object.values<Instrument>(metrics);
const readOwn = createProcessMetrics(() => []);
const tell = async () => writeMetrics([{ families: await readOwn() }], []);
let text: string;
/** Of every figure there is, ours or not: its type. */
let types: Map<string, string>;

before(async () => {
  ({ text } = await tell());
  types = new Map([...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => [name!, type!]));
});

test('names follow the conventions of Prometheus, and labels are few', () => {
  for (const { name, type, labels, help } of all) {
    assert.match(name, /^trellis_[a-z]+(_[a-z]+)*$/, name);
    assert.equal(name.endsWith('_total'), type === 'counter', name);
    if (type === 'histogram') assert.match(name, /_seconds$/, name);
    assert.match(help, /\.$/, name);
    assert.ok(labels.length <= 3, name);
    for (const label of labels)
      assert.ok(!/connection|integration|environment|host|path|user|key|id$/.test(label), `${name} ${label}`);
    // Prometheus would store ours as `exported_...`, and a question by the name would group by its own.
    for (const label of labels) assert.ok(!given.has(label), `${name} ${label}`);
  }
  assert.equal(new Set(all.map(({ name }) => name)).size, all.length);
});

test('every figure is documented as it is, and no other', () => {
  const rows = read('monitoring.md').matchAll(/^\| `(trellis_\w+)` \| (\w+) \| (.*?) \| (.*) \|$/gm);
  const documented = Array.from(rows, ([, name, type, labels = '', help]) => ({
    name,
    type,
    help,
    labels: [...labels.matchAll(/`(\w+)`/g)].map(([, label]) => label),
  }));
  assert.deepEqual(
    documented,
    all.map(({ name, type, help, labels }) => ({ name, type, help, labels: [...labels] })),
  );
});

test('a histogram has cumulative buckets, its sum and its count', async () => {
  metrics.refreshLeaseWait.observe(['a-provider'], 0.3);
  metrics.refreshLeaseWait.observe(['a-provider'], 99);
  const reported = (await tell()).text;
  const of = 'trellis_refresh_lease_wait_seconds';
  for (const line of [
    `# TYPE ${of} histogram`,
    `${of}_bucket{provider="a-provider",le="0.25"} 0`,
    `${of}_bucket{provider="a-provider",le="0.5"} 1`,
    `${of}_bucket{provider="a-provider",le="30"} 1`,
    `${of}_bucket{provider="a-provider",le="+Inf"} 2`,
    `${of}_sum{provider="a-provider"} 99.3`,
    `${of}_count{provider="a-provider"} 2`,
  ])
    assert.ok(reported.split('\n').includes(line), line);
});

test('the metrics of several processes have the label `process`, and those of the installation are written once', async () => {
  const families = await readOwn();
  const processes = ['1', '2'].map((process) => ({ process, families }));
  const { text: both } = await writeMetrics(processes, [metrics.runsOldestDue.reads([[], 7])]);
  const linesOf = (name: string) => both.split('\n').filter((line) => line.startsWith(name));
  assert.deepEqual(linesOf('trellis_sign_ins_refused_total'), [
    'trellis_sign_ins_refused_total{process="1"} 0',
    'trellis_sign_ins_refused_total{process="2"} 0',
  ]);
  assert.deepEqual(linesOf('trellis_runs_oldest_due_seconds'), ['trellis_runs_oldest_due_seconds 7']);
  assert.deepEqual(linesOf('# TYPE process_cpu_seconds_total'), ['# TYPE process_cpu_seconds_total counter']);
});

test('a metric without labels exists from the start, and counts nothing if nothing happened', () => {
  assert.match(text, /^trellis_sign_ins_refused_total 0$/m);
  countRecords({ added: 0 });
  assert.deepEqual(metrics.records.samples(), []);
  assert.deepEqual([200, 404, undefined].map(statusClass), ['2xx', '4xx', 'none']);
});

type Panel = { title: string; targets?: { expr: string; legendFormat: string }[] };
const dashboard = JSON.parse(read('grafana-dashboard.json')) as {
  panels: Panel[];
  templating: { list: { definition?: string }[] };
};
type Rule = {
  alert: string;
  expr: string;
  annotations: Record<string, string>;
  labels: Record<string, string>;
};
const rules = (parse(read('alerts.yaml')) as { groups: { rules: Rule[] }[] }).groups.flatMap(
  ({ rules }) => rules,
);

const words = new Set(
  'sum max min avg count by on ignoring without and or unless rate increase histogram_quantile clamp_min topk offset bool label_values vector'.split(
    ' ',
  ),
);
/** Of whatever scrapes, and `process` of all metrics if several processes serve. */
const given = new Set(['up', 'instance', 'job', 'process']);

/** What an expression names that there is not. */
function unknownIn(expr: string): string[] {
  const bare = expr.replace(/\[[^\]]*\]/g, '').replace(/"(?:[^"\\]|\\.)*"/g, '""');
  const wrong: string[] = [];
  // Selectors, with the labels that they ask for.
  for (const [, name = '', selector = ''] of bare.matchAll(/([a-z_]\w*)\s*\{([^}]*)\}/g)) {
    for (const [, label = ''] of selector.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g))
      if (!hasLabel(name, label)) wrong.push(`${name}{${label}}`);
  }
  const without = bare.replace(/\{[^}]*\}/g, '');
  const named: string[] = [];
  const labelLists = without.replace(/\b(?:by|on|ignoring|without)\s*\(([^)]*)\)/g, (_, list: string) => {
    named.push(...list.split(',').map((label) => label.trim()));
    return '';
  });
  const names = [...labelLists.matchAll(/(?<![\w.$])[a-z_]\w*/g)]
    .map(([name]) => name)
    .filter((name) => !words.has(name));
  const metricsNamed = names.filter((name) => !given.has(name) || name === 'up');
  for (const name of metricsNamed) if (name !== 'up' && !isFigure(name)) wrong.push(name);
  for (const label of named.filter((label) => label !== ''))
    if (!metricsNamed.some((name) => hasLabel(name, label))) wrong.push(`by (${label})`);
  return wrong;
}

function isFigure(name: string): boolean {
  const [, base = '', part] = /^(.*?)(?:_(bucket|sum|count))?$/.exec(name) ?? [];
  if (types.has(name)) return types.get(name) !== 'histogram';
  return part !== undefined && types.get(base) === 'histogram';
}

function hasLabel(name: string, label: string): boolean {
  if (given.has(label)) return true;
  const base = name.replace(/_(bucket|sum|count)$/, '');
  if (label === 'le') return types.get(base) === 'histogram';
  const ours = all.find((one) => one.name === name || one.name === base);
  if (ours !== undefined) return ours.labels.includes(label as never);
  return name.startsWith('nodejs_gc_duration_seconds') && label === 'kind';
}

/** Whether what an expression comes to has this label. */
function answersWith(expr: string, label: string): boolean {
  const lists = [...expr.matchAll(/\bby\s*\(([^)]*)\)/g)].map(([, list = '']) => list.split(/\s*,\s*/));
  if (lists.length > 0) return lists.some((list) => list.includes(label));
  const [name = ''] = /[a-z]+_\w+/.exec(expr) ?? [];
  return hasLabel(name, label);
}

test('what names no figure is found', () => {
  for (const [expr, wrong] of [
    ['sum by (provider) (rate(trellis_proxy_calls_total{status="5xx"}[5m]))', []],
    ['rate(trellis_proxy_call_total[5m])', ['trellis_proxy_call_total']],
    ['trellis_proxy_call_duration_seconds', ['trellis_proxy_call_duration_seconds']],
    ['trellis_proxy_calls_total_bucket', ['trellis_proxy_calls_total_bucket']],
    ['trellis_runs_total{provider="x"}', ['trellis_runs_total{provider}']],
    ['sum by (host) (trellis_runs_total)', ['by (host)']],
  ] as const)
    assert.deepEqual(unknownIn(expr), wrong, expr);
});

test('every panel of the dashboard queries existing metrics and labels', () => {
  const asked = dashboard.panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr, legendFormat }) => ({ title, expr, legendFormat })),
  );
  assert.ok(asked.length > 50);
  for (const { title, expr, legendFormat } of asked) {
    assert.deepEqual(unknownIn(expr), [], `${title}: ${expr}`);
    for (const [, label = ''] of legendFormat.matchAll(/\{\{(\w+)\}\}/g))
      assert.ok(answersWith(expr, label), `${title}: ${legendFormat}`);
  }
  for (const { definition } of dashboard.templating.list)
    if (definition !== undefined) assert.deepEqual(unknownIn(definition), [], definition);
  const drawn = asked.map(({ expr }) => expr).join('\n');
  const hidden = all.filter(({ name }) => !drawn.includes(name)).map(({ name }) => name);
  assert.deepEqual(hidden, []);
});

test('every alert queries existing metrics, and has a summary and a next step', () => {
  assert.ok(rules.length >= 20);
  for (const { alert, expr, annotations, labels } of rules) {
    assert.deepEqual(unknownIn(expr), [], `${alert}: ${expr}`);
    assert.match(alert, /^Trellis[A-Z]/);
    assert.match(labels.severity ?? '', /^(warning|critical)$/, alert);
    assert.match(annotations.summary ?? '', /\.$/, alert);
    assert.ok((annotations.runbook ?? '').length > 60, alert);
    for (const [, label = ''] of JSON.stringify(annotations).matchAll(/\$labels\.(\w+)/g))
      assert.ok(answersWith(expr, label), `${alert}: ${label}`);
  }
});
