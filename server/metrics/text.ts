/** Figures in the form that Prometheus reads, those of the process and of Node among them. */

import type { Distribution, Instrument, Reading, Sample } from './instruments.ts';
import { metrics } from './metrics.ts';

export type MetricsText = { contentType: string; text: string };

type Value = { labels: Record<string, string>; value: number; metricName: string };

/**
 * Writes what all instruments say now, and of gauges what `read` answers. prom-client is loaded at the first call, and
 * watches the event loop and the collector of garbage from then on: who never asks pays for none of it.
 */
export function createMetricsText(read: () => Promise<readonly Reading[]>): () => Promise<MetricsText> {
  let loading: ReturnType<typeof load> | undefined;
  let readings: Map<Instrument, readonly Sample[]>;

  async function load() {
    const { Registry, collectDefaultMetrics } = await import('prom-client');
    const registry = new Registry();
    for (const instrument of Object.values<Instrument>(metrics)) {
      const { name, help, type } = instrument;
      const aggregator = 'sum';
      const get = async () => ({
        ...{ name, help, type, aggregator },
        values: valuesOf(instrument, readings.get(instrument) ?? []),
      });
      registry.registerMetric({ name, get } as never);
    }
    collectDefaultMetrics({ register: registry });
    return registry;
  }

  return async () => {
    loading ??= load();
    const registry = await loading;
    readings = new Map((await read()).map(({ gauge, samples }) => [gauge, samples]));
    return { contentType: registry.contentType, text: await registry.metrics() };
  };
}

function valuesOf(instrument: Instrument, read: readonly Sample[]): Value[] {
  const named = (values: readonly string[]) =>
    Object.fromEntries(instrument.labels.map((label, at) => [label, values[at] ?? '']));
  if (instrument.type === 'histogram') {
    return Array.from(instrument.distributions(), ({ labels, cell }) =>
      linesOf(instrument.name, named(labels), cell),
    ).flat();
  }
  const samples: readonly Sample[] = instrument.type === 'gauge' ? read : instrument.samples();
  return samples.map(({ labels, value }) => ({ labels: named(labels), value, metricName: instrument.name }));
}

/** Each bound counts what is at most so large, the ones below it included. */
function linesOf(
  name: string,
  labels: Record<string, string>,
  { bounds, counts, sum }: Distribution,
): Value[] {
  let total = 0;
  const buckets = [...bounds.map(String), '+Inf'].map((le, at) => {
    total += counts[at] as number;
    return { labels: { ...labels, le }, value: total, metricName: `${name}_bucket` };
  });
  return [
    ...buckets,
    { labels, value: sum, metricName: `${name}_sum` },
    { labels, value: total, metricName: `${name}_count` },
  ];
}
