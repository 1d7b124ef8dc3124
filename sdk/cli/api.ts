/** The service that developer commands talk to. */
import { exchange, type Received, type Sent } from './exchange.ts';
import type { Surroundings } from './surroundings.ts';

/** What it refuses, a line each. */
export type Refused = { faults: string[]; status: number; code: string };
export type Answered = { body: unknown } | Refused;

export type Api = {
  url: string;
  /** Throws where the service cannot be reached. */
  get(path: string, headers?: Record<string, string>): Promise<Answered>;
  post(path: string, body: object, headers?: Record<string, string>): Promise<Answered>;
  /** Any request with the key, and its answer as it came. */
  send(sent: Sent): Promise<Received>;
  /** The word in the service's interface names. */
  brand(): Promise<string>;
};

type Refusal = {
  error?: { code?: string; message?: string; errors?: { message: string; path: string[] }[] };
};

/** By TRELLIS_URL (http://localhost:3003 unless set) and TRELLIS_SECRET_KEY. Throws where the key is missing. */
export function openApi(env: Surroundings['env']): Api {
  const url = (env.TRELLIS_URL ?? 'http://localhost:3003').replace(/\/+$/, '');
  const key = env.TRELLIS_SECRET_KEY;
  if (!key) throw new Error('TRELLIS_SECRET_KEY is not set: it is a key of the environment that is meant.');
  if (!/^[\x21-\x7e]+$/.test(key))
    throw new Error(
      'TRELLIS_SECRET_KEY holds characters that no key has, such as a space or the end of a line.',
    );
  if (!/^https?:/.test(url) || !URL.canParse(url)) throw new Error(`${url} is no address of a service.`);
  const base = new URL(url);
  let brand: string | undefined;
  const send = async (sent: Sent): Promise<Received> => {
    const answer = await exchange(base.origin, {
      ...sent,
      path: `${base.pathname.replace(/\/$/, '')}${sent.path}`,
      headers: { ...sent.headers, authorization: `Bearer ${key}` },
    });
    brand ??= brandIn(answer.headers);
    return answer;
  };
  return {
    url,
    send,
    get: async (path, headers) => answered(await send({ method: 'GET', path, headers })),
    post: async (path, body, headers) =>
      answered(
        await send({
          ...{ method: 'POST', path, body: JSON.stringify(body) },
          headers: { ...headers, 'content-type': 'application/json' },
        }),
      ),
    async brand() {
      if (brand === undefined) await send({ method: 'GET', path: '/providers/none' });
      return brand ?? 'trellis';
    },
  };
}

/** The body of what was not refused. Throws an error that says why it was. */
export function bodyOf<T>(answer: Answered): T {
  if ('faults' in answer) throw new Error(answer.faults.join('\n'));
  return answer.body as T;
}

/** Each answer names the header of errors to pages of other origins, and that holds the word. */
function brandIn(headers: Record<string, string>): string | undefined {
  return /\bX-(\w+)-Error\b/.exec(headers['access-control-expose-headers'] ?? '')?.[1]?.toLowerCase();
}

function answered({ status, body }: Received): Answered {
  const text = body.toString('utf8');
  try {
    const parsed: unknown = text === '' ? null : JSON.parse(text);
    return status < 300 ? { body: parsed } : { ...faultsOf(parsed as Refusal | null, status), status };
  } catch {
    return { faults: [`The service answered ${status}, and no JSON.`], status, code: String(status) };
  }
}

function faultsOf(refusal: Refusal | null, status: number): Omit<Refused, 'status'> {
  const { code = String(status), message = '', errors = [] } = refusal?.error ?? {};
  if (code === 'invalid_function')
    return { code, faults: [...errors.map((one) => one.message), 'Nothing was deployed.'] };
  return {
    code,
    faults: [`${message} (${code})`, ...errors.map((one) => `  ${one.path.join('.')}: ${one.message}`)],
  };
}
