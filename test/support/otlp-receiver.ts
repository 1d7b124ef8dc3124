// A collector of traces, as OTLP over HTTP has it, in the form of JSON.

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';

export type ReceivedSpan = {
  name: string;
  traceId: string;
  spanId: string;
  parentSpanId: string | undefined;
  /** Of OTLP: 1 internal, 2 server, 3 client. */
  kind: number;
  attributes: Record<string, string | number | boolean>;
  isError: boolean;
  links: { traceId: string; spanId: string }[];
};

type Value = { stringValue?: string; intValue?: number | string; boolValue?: boolean; doubleValue?: number };
type Wire = {
  resourceSpans: {
    resource: { attributes: { key: string; value: Value }[] };
    scopeSpans: {
      spans: (Omit<ReceivedSpan, 'attributes' | 'isError' | 'links'> & {
        links?: ReceivedSpan['links'];
        attributes: { key: string; value: Value }[];
        status: { code?: number };
      })[];
    }[];
  }[];
};

export type OtlpReceiver = {
  /** For OTEL_EXPORTER_OTLP_ENDPOINT. */
  url: string;
  /** All that came, as it came. */
  texts: string[];
  spans: ReceivedSpan[];
  /** Headers of the last request. */
  headers: Record<string, unknown>;
  service: () => string | undefined;
  /** Waits until such a span has come. */
  until(isWanted: (span: ReceivedSpan) => boolean): Promise<ReceivedSpan>;
  close(): Promise<void>;
};

export async function openOtlpReceiver(): Promise<OtlpReceiver> {
  const spans: ReceivedSpan[] = [];
  const texts: string[] = [];
  let headers: Record<string, unknown> = {};
  let service: string | undefined;
  const server = createServer(async (request, response) => {
    const text = Buffer.concat(await request.toArray()).toString();
    texts.push(text);
    ({ headers } = request);
    const isTaken = request.url === '/v1/traces' && request.headers['content-type'] === 'application/json';
    response.writeHead(isTaken ? 200 : 404, { 'content-type': 'application/json' }).end('{}');
    if (!isTaken) return;
    for (const { resource, scopeSpans } of (JSON.parse(text) as Wire).resourceSpans) {
      service = String(valuesOf(resource.attributes)['service.name']);
      for (const span of scopeSpans.flatMap((scope) => scope.spans))
        spans.push({
          ...span,
          attributes: valuesOf(span.attributes),
          isError: span.status.code === 2,
          links: span.links ?? [],
        });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans,
    texts,
    get headers() {
      return headers;
    },
    service: () => service,
    async until(isWanted) {
      for (let left = 400; left > 0; left--) {
        const found = spans.find(isWanted);
        if (found !== undefined) return found;
        await pause(25);
      }
      throw new Error(`no such span among ${spans.map(({ name }) => name).join(', ')}`);
    },
    async close() {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}

function valuesOf(pairs: { key: string; value: Value }[]): ReceivedSpan['attributes'] {
  return Object.fromEntries(
    pairs.map(({ key, value }) => [
      key,
      value.stringValue ?? value.boolValue ?? Number(value.intValue ?? value.doubleValue),
    ]),
  );
}
