/**
 * Sends spans to a collector: the SDK of OpenTelemetry, OTLP over HTTP as JSON. Loaded only if a collector is set. The
 * operator sets the collector's address, as that of the database, so the rules for calls to providers do not apply to it.
 */
import {
  type Context,
  createTraceState,
  ROOT_CONTEXT,
  type Span as SdkSpan,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import type { TracingConfig } from '../config/monitoring.ts';
import type { Attributes, NewSpan, RemoteSpan, Span, Tracer } from './tracing.ts';

export type Export = {
  tracer: Tracer;
  /** Sends the remaining spans, for a second at most. */
  stop(): Promise<void>;
};

const kinds = {
  server: SpanKind.SERVER,
  client: SpanKind.CLIENT,
  internal: SpanKind.INTERNAL,
  producer: SpanKind.PRODUCER,
  consumer: SpanKind.CONSUMER,
} as const;
const everyMs = 500;
const exportMs = 5_000;
/** If the collector does not keep up, the spans beyond this number are discarded. */
const maxWaiting = 8_192;
const stopMs = 1_000;

/** `onError` receives the first failure in a row; spans that could not be sent are discarded. */
export function createExport(
  config: TracingConfig,
  { version, onError }: { version: string; onError: (error: unknown) => void },
): Export {
  const exporter = new OTLPTraceExporter({
    url: config.url,
    headers: config.headers,
    timeoutMillis: exportMs,
  });
  const provider = new TracerProvider({
    resource: resourceFromAttributes({ 'service.name': config.serviceName, 'service.version': version }),
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(config.share) }),
    spanProcessors: [
      new BatchSpanProcessor({
        exporter: reporting(exporter, onError),
        scheduledDelayMillis: everyMs,
        exportTimeoutMillis: exportMs,
        maxQueueSize: maxWaiting,
      }),
    ],
  });
  const made = provider.getTracer('trellis', version);
  return {
    tracer: (name, { kind, attributes, parent, link }: NewSpan) =>
      new ExportedSpan(
        made.startSpan(
          name,
          {
            kind: kinds[kind],
            attributes: { ...attributes },
            ...(link !== undefined && { links: [{ context: contextOfRemote(link) }] }),
          },
          contextOf(parent),
        ),
      ),
    async stop() {
      const over = Promise.withResolvers<void>();
      const timer = setTimeout(over.resolve, stopMs);
      await Promise.race([provider.shutdown().catch(onError), over.promise]);
      clearTimeout(timer);
    },
  };
}

class ExportedSpan implements Span {
  readonly traceId: string;
  readonly traceparent: string;
  readonly span: SdkSpan;

  constructor(span: SdkSpan) {
    this.span = span;
    const { traceId, spanId, traceFlags } = span.spanContext();
    this.traceId = traceId;
    this.traceparent = `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`;
  }

  set(attributes: Attributes): void {
    this.span.setAttributes({ ...attributes });
  }

  end(error?: string): void {
    if (error !== undefined) {
      this.span.setAttribute('error.type', error);
      this.span.setStatus({ code: SpanStatusCode.ERROR });
    }
    this.span.end();
  }
}

function contextOf(parent: Span | RemoteSpan | undefined): Context {
  if (parent === undefined) return ROOT_CONTEXT;
  if (parent instanceof ExportedSpan) return trace.setSpan(ROOT_CONTEXT, parent.span);
  if (!('spanId' in parent)) return ROOT_CONTEXT;
  return trace.setSpanContext(ROOT_CONTEXT, contextOfRemote(parent));
}

function contextOfRemote({ traceId, spanId, flags, state }: RemoteSpan): SpanContext {
  return {
    traceId,
    spanId,
    traceFlags: flags,
    isRemote: true,
    ...(state !== undefined && { traceState: createTraceState(state) }),
  };
}

/** Passes errors to `onError`: the SDK would report them outside of the log. */
function reporting(exporter: SpanExporter, onError: (error: unknown) => void): SpanExporter {
  let isFailing = false;
  return {
    export(spans, done) {
      exporter.export(spans, (result) => {
        if (result.code !== 0 && !isFailing) onError(result.error);
        isFailing = result.code !== 0;
        done({ code: 0 });
      });
    },
    shutdown: () => exporter.shutdown(),
    ...(exporter.forceFlush && { forceFlush: () => exporter.forceFlush!() }),
  };
}
