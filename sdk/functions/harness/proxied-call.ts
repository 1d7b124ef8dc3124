import type { ProxyConfiguration, ProxyError, ProxyResponse } from '../http.ts';
import { bytesOf, type Service } from './service.ts';

type Answered = { status: number; statusText: string; headers: Record<string, string> };

/** One call through the proxy. Throws a `ProxyError` for statuses from 400 on, and if there is no response. */
export async function proxiedCall(service: Service, config: ProxyConfiguration): Promise<ProxyResponse> {
  const { endpoint, method = 'GET', headers = {}, params, data, responseType } = config;
  const sent = Object.fromEntries(
    Object.entries(headers)
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => [name.toLowerCase(), String(value)]),
  );
  const body = bodyOf(data, sent);
  const query = queryOf(params);
  const { retries, retryOn, baseUrlOverride, decompress } = config;
  const request = {
    method: method.toUpperCase(),
    endpoint: String(endpoint),
    query,
    headers: sent,
    retries,
    retryOn: retryOn ?? undefined,
    baseUrlOverride,
    decompress,
  };
  const answer = await service.call('proxy', request, body).catch((error: Error) => {
    throw noAnswer(error, config);
  });
  const { status, statusText, headers: received } = answer.value as Answered;
  const response: ProxyResponse = {
    status,
    statusText,
    headers: received,
    config,
    data: responseType === 'stream' && status < 400 ? answer.body : undefined,
  };
  if (response.data === undefined) {
    response.data = read(await bytesOf(answer.body), responseType);
  }
  if (status >= 400) throw refused(response);
  return response;
}

function read(bytes: Buffer, as: ProxyConfiguration['responseType']): unknown {
  if (as === 'arraybuffer') return bytes;
  const text = bytes.toString('utf8');
  if (as === 'text') return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Also sets the Content-Type of the body, unless the headers have one. */
function bodyOf(data: unknown, headers: Record<string, string>): Iterable<unknown> | undefined {
  if (data === undefined || data === null) return undefined;
  if (typeof data === 'string' || data instanceof Uint8Array) return [data];
  const type = headers['content-type'];
  if (data instanceof URLSearchParams || type?.startsWith('application/x-www-form-urlencoded')) {
    headers['content-type'] ??= 'application/x-www-form-urlencoded';
    return [data instanceof URLSearchParams ? data.toString() : queryOf(data as Record<string, string>)];
  }
  headers['content-type'] ??= 'application/json';
  return [JSON.stringify(data)];
}

/** Without the question mark. */
export function queryOf(params: ProxyConfiguration['params']): string {
  if (params === undefined) return '';
  if (typeof params === 'string') return params.replace(/^\?/, '');
  if (params instanceof URLSearchParams) return params.toString();
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const one of [value].flat()) if (one !== undefined && one !== null) search.append(name, String(one));
  }
  return search.toString();
}

function refused(response: ProxyResponse): ProxyError {
  const { status, data } = response;
  const error = new Error(`Request failed with status code ${status}`);
  error.name = 'ProxyError';
  return Object.assign(error, {
    isAxiosError: true as const,
    code: status < 500 ? 'ERR_BAD_REQUEST' : 'ERR_BAD_RESPONSE',
    status,
    response,
    // The failed run shows the provider's response to its readers.
    payload: { status, data: shown(data) },
  });
}

function noAnswer(error: Error, config: ProxyConfiguration): ProxyError {
  const code = (error as { code?: string }).code ?? 'ERR_NETWORK';
  return Object.assign(error, { isAxiosError: true as const, code, config });
}

function shown(data: unknown): unknown {
  const text = typeof data === 'string' ? data : JSON.stringify(data);
  return text === undefined || text.length <= 4096 ? data : `${text.slice(0, 4096)}…`;
}
