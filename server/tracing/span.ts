/** Spans as the modules use them: the contents of a trace, without the export. */

export type Attributes = Readonly<Record<string, string | number | boolean>>;

/** One piece of work in a trace. Attributes are named by the semantic conventions of OpenTelemetry where they have a name. */
export type Span = {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
  /** Names it to other processes, and to what is done later because of it (W3C Trace Context §3.2). */
  readonly traceparent: string;
  set(attributes: Attributes): void;
  /** Ends it, once; with `error` it failed, and that is why: a code, never a message. */
  end(error?: string): void;
};

type SpanKind = 'server' | 'client' | 'internal' | 'producer' | 'consumer';

export type NewSpan = {
  readonly kind: SpanKind;
  readonly attributes?: Attributes;
  /** What it is part of. Absent: the span of the present cause, and else nothing: a trace of its own. */
  readonly parent?: Span | RemoteSpan | undefined;
  /** What asked for it and does not wait: work that was queued is a trace of its own, linked to that. */
  readonly link?: RemoteSpan | undefined;
};

/** A span of another process, as `traceparent` and `tracestate` name it (W3C Trace Context). */
export type RemoteSpan = {
  readonly traceId: string;
  readonly spanId: string;
  readonly flags: number;
  readonly state: string | undefined;
};

/** Who makes spans while tracing is on. */
export type Tracer = (name: string, span: NewSpan) => Span;

/** Undefined where there is none, or it does not read as one: then the work begins a trace (W3C Trace Context §3.2.2). */
export function remoteSpanOf({
  traceparent,
  tracestate,
}: NodeJS.Dict<string | string[]>): RemoteSpan | undefined {
  if (typeof traceparent !== 'string') return undefined;
  const found = /^([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(-.*)?$/.exec(traceparent);
  if (found === null) return undefined;
  const [, version, traceId = '', spanId = '', flags = '', more] = found;
  const isForbidden = version === 'ff' || /^0+$/.test(traceId) || /^0+$/.test(spanId);
  if (isForbidden || (version === '00' && more !== undefined)) return undefined;
  const state = typeof tracestate === 'string' && tracestate.length <= 512 ? tracestate : undefined;
  return { traceId, spanId, flags: Number.parseInt(flags, 16), state };
}
