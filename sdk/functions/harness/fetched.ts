import type { FetchResponse } from '../context.ts';
import { bytesOf, type Service } from './service.ts';

type Request = { url: URL; method?: string; headers?: Record<string, string>; body?: string | null };

/** A request to anywhere public, without credentials. */
export async function uncontrolledFetch(service: Service, request: Request): Promise<FetchResponse> {
  const { url, method = 'GET', headers = {}, body } = request;
  const answer = await service.ask(
    'uncontrolledFetch',
    { url: String(url), method, headers },
    body === undefined || body === null ? undefined : [body],
  );
  const told = answer.value as {
    status: number;
    statusText: string;
    url: string;
    headers: Record<string, string>;
  };
  const received = new Map(Object.entries(told.headers));
  let bytes: Promise<Buffer> | undefined;
  const whole = () => {
    bytes ??= bytesOf(answer.body);
    return bytes;
  };
  const text = async () => (await whole()).toString('utf8');
  return {
    ok: told.status >= 200 && told.status < 300,
    status: told.status,
    statusText: told.statusText,
    url: told.url,
    headers: {
      get: (name) => received.get(name.toLowerCase()) ?? null,
      has: (name) => received.has(name.toLowerCase()),
      entries: () => received.entries(),
    },
    text,
    json: async () => JSON.parse(await text()),
    arrayBuffer: async () => new Uint8Array(await whole()).buffer,
  };
}
