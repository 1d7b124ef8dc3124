/** The settings by which the service is watched: who reads its metrics, and where its traces go. */
import { readUrl } from './setting-values.ts';

export type MonitoringConfig = {
  /** Asked of everybody who reads `/metrics`. Undefined: only programs of this machine may. */
  metricsToken: string | undefined;
  /** Undefined: nothing is traced. */
  tracing: TracingConfig | undefined;
};

export type TracingConfig = {
  /** Where spans are posted to. */
  url: string;
  headers: Record<string, string>;
  serviceName: string;
  /** Of the traces that begin here, 0 to 1; one that began elsewhere goes on as its caller says. */
  share: number;
};

export function readMonitoring(
  read: (name: string) => string | undefined,
  faults: string[],
): MonitoringConfig {
  const metricsToken = read('TRELLIS_METRICS_TOKEN');
  if (metricsToken !== undefined && !/^[A-Za-z0-9._~+/=-]{16,200}$/.test(metricsToken)) {
    faults.push('TRELLIS_METRICS_TOKEN must be 16 to 200 characters of A-Z a-z 0-9 . _ ~ + / = -');
  }
  return { metricsToken, tracing: readTracing(read, faults) };
}

/** Named as OpenTelemetry names them, so that what is set for all programs of a machine holds here too. */
function readTracing(
  read: (name: string) => string | undefined,
  faults: string[],
): TracingConfig | undefined {
  const endpoint = read('OTEL_EXPORTER_OTLP_ENDPOINT');
  const headers = read('OTEL_EXPORTER_OTLP_HEADERS');
  const serviceName = read('OTEL_SERVICE_NAME') ?? 'trellis';
  const share = read('OTEL_TRACES_SAMPLER_ARG') ?? '1';
  if (endpoint === undefined) return undefined;
  if (!/^(0(\.\d+)?|1(\.0+)?)$/.test(share)) {
    faults.push(`OTEL_TRACES_SAMPLER_ARG must be a share from 0 to 1, it is "${share}"`);
  }
  const url = readUrl(endpoint, { name: 'OTEL_EXPORTER_OTLP_ENDPOINT', fallback: '', faults });
  return {
    url: `${url}/v1/traces`,
    headers: readPairs(headers, faults),
    serviceName,
    share: Number(share),
  };
}

/** `name=value,name=value`, the values percent-encoded where they must be. Faults never repeat a value. */
function readPairs(text: string | undefined, faults: string[]): Record<string, string> {
  const pairs: Record<string, string> = {};
  for (const part of text?.split(',') ?? []) {
    if (part.trim() === '') continue;
    const [, name, value] = /^\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*=\s*(.*?)\s*$/.exec(part) ?? [];
    const decoded = value === undefined ? undefined : decode(value);
    if (name === undefined || decoded === undefined) {
      faults.push('OTEL_EXPORTER_OTLP_HEADERS must read name=value,name=value');
      return {};
    }
    pairs[name] = decoded;
  }
  return pairs;
}

/** Undefined where it cannot be a header's value. */
function decode(text: string): string | undefined {
  try {
    const value = decodeURIComponent(text);
    return /^[\t\x20-\x7e]*$/.test(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
