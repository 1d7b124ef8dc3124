/** The service that developer commands talk to. */
export type Api = {
  url: string;
  /** What it answers; or what it refuses, a line each. Throws where it cannot be reached. */
  post(path: string, body: object): Promise<{ body: unknown } | { faults: string[] }>;
};

type Refusal = {
  error?: { code?: string; message?: string; errors?: { message: string; path: string[] }[] };
};

/** By TRELLIS_URL (http://localhost:3003 unless set) and TRELLIS_SECRET_KEY. Throws where the key is missing. */
export function openApi(env: Readonly<Record<string, string | undefined>>): Api {
  const url = (env.TRELLIS_URL ?? 'http://localhost:3003').replace(/\/+$/, '');
  const key = env.TRELLIS_SECRET_KEY;
  if (!key) throw new Error('TRELLIS_SECRET_KEY is not set: it is a key of the environment that is meant.');
  return {
    url,
    async post(path, body) {
      const response = await fetch(`${url}${path}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }).catch((error: Error) => {
        throw new Error(
          `${url} cannot be reached: ${(error.cause as Error | undefined)?.message ?? error.message}`,
        );
      });
      const text = await response.text();
      if (response.ok) return { body: JSON.parse(text) };
      return { faults: faultsOf(text, response.status) };
    },
  };
}

function faultsOf(text: string, status: number): string[] {
  let refusal: Refusal;
  try {
    refusal = JSON.parse(text) as Refusal;
  } catch {
    return [`The service answered ${status}, and no JSON.`];
  }
  const { code = String(status), message = '', errors = [] } = refusal.error ?? {};
  if (code === 'invalid_function') return [...errors.map((one) => one.message), 'Nothing was deployed.'];
  return [`${message} (${code})`, ...errors.map((one) => `  ${one.path.join('.')}: ${one.message}`)];
}
