/** The settings of monitoring: access to the metrics, and the destination of traces. */
import type { Settings } from './setting-values.ts';

export type MonitoringConfig = {
  /** Required to read `/metrics`. Undefined: only programs of this machine may read them. */
  metricsToken: string | undefined;
  /** Undefined: nothing is traced. */
  tracing: TracingConfig | undefined;
};

export type TracingConfig = {
  /** The address that receives the spans. */
  url: string;
  headers: Record<string, string>;
  serviceName: string;
  /** The exported share, 0 to 1, of the traces that begin here; a caller decides about a trace that it began. */
  share: number;
};

export function readMonitoring(settings: Settings): MonitoringConfig {
  const metricsToken = settings.secret('TRELLIS_METRICS_TOKEN');
  if (metricsToken !== undefined && !/^[A-Za-z0-9._~+/=-]{16,200}$/.test(metricsToken)) {
    settings.faults.push('TRELLIS_METRICS_TOKEN must be 16 to 200 characters of A-Z a-z 0-9 . _ ~ + / = -');
  }
  return { metricsToken, tracing: readTracing(settings) };
}

/** OpenTelemetry's own names, so that settings for all programs of a machine apply here too. */
function readTracing(settings: Settings): TracingConfig | undefined {
  if (settings.read('OTEL_EXPORTER_OTLP_ENDPOINT') === undefined) return undefined;
  const share = settings.share('OTEL_TRACES_SAMPLER_ARG');
  return {
    url: `${settings.url('OTEL_EXPORTER_OTLP_ENDPOINT', '')}/v1/traces`,
    headers: readPairs(settings.secret('OTEL_EXPORTER_OTLP_HEADERS'), settings.faults),
    serviceName: settings.read('OTEL_SERVICE_NAME') ?? 'trellis',
    share,
  };
}

/** `name=value,name=value`, with percent-encoded values. Messages never repeat a value. */
function readPairs(text: string | undefined, faults: string[]): Record<string, string> {
  const pairs: Record<string, string> = {};
  for (const part of text?.split(',') ?? []) {
    if (part.trim() === '') continue;
    const [, name, value] = /^\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*=\s*(.*?)\s*$/.exec(part) ?? [];
    const decoded = value === undefined ? undefined : decode(value);
    if (name === undefined || decoded === undefined) {
      faults.push('OTEL_EXPORTER_OTLP_HEADERS must have the form name=value,name=value');
      return {};
    }
    pairs[name] = decoded;
  }
  return pairs;
}

/** Undefined if it cannot be a header's value. */
function decode(text: string): string | undefined {
  try {
    const value = decodeURIComponent(text);
    return /^[\t\x20-\x7e]*$/.test(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
