import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readMonitoring } from './monitoring.ts';
import { Settings } from './setting-values.ts';

function read(env: Record<string, string>) {
  const settings = new Settings(env);
  return { ...readMonitoring(settings), faults: settings.faults };
}

test('nothing is traced, and no token is required, unless it is set', () => {
  assert.deepEqual(read({}), { metricsToken: undefined, tracing: undefined, faults: [] });
  // Of other programs of the machine, which trace.
  assert.equal(read({ OTEL_SERVICE_NAME: 'x', OTEL_TRACES_SAMPLER_ARG: 'y' }).faults.length, 0);
});

test('the settings of OpenTelemetry say where traces go', () => {
  const { tracing, faults } = read({
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318/',
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Basic%20abc=, x-team = a b',
    OTEL_SERVICE_NAME: 'integrations',
    OTEL_TRACES_SAMPLER_ARG: '0.25',
  });
  assert.deepEqual(faults, []);
  assert.deepEqual(tracing, {
    url: 'http://collector:4318/v1/traces',
    headers: { authorization: 'Basic abc=', 'x-team': 'a b' },
    serviceName: 'integrations',
    share: 0.25,
  });
});

test('faults are reported without the values', () => {
  const { faults } = read({
    TRELLIS_METRICS_TOKEN: 'secret value',
    OTEL_EXPORTER_OTLP_ENDPOINT: 'collector:4318',
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=ok,s3cret',
    OTEL_TRACES_SAMPLER_ARG: '2',
  });
  assert.equal(faults.length, 4, faults.join());
  assert.ok(!/secret value|s3cret/.test(faults.join()));
  const smuggled = read({
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:1',
    OTEL_EXPORTER_OTLP_HEADERS: 'a=b%0d%0ac: d',
  });
  assert.equal(smuggled.faults.length, 1);
});
