/** A run in the service, followed from here: its lines as they come, and its end. */
import { type Api, bodyOf } from './api.ts';
import { Unreachable } from './exchange.ts';

export type Counts = { added: number; updated: number; deleted: number; unchanged: number };
export type Run = {
  id: string;
  function: string;
  kind: string;
  variant: string;
  state: 'waiting' | 'running' | 'succeeded' | 'failed' | 'cancelled';
  started_at: string | null;
  error: { code: string; message: string; payload?: { stack?: string } } | null;
  counts: Record<string, Counts>;
};
type Line = { position: number; level: string; message: string };

const pollMs = 300;
/** A restarted service is back within this time, and its runs go on. */
const maxOutageMs = 60_000;

/**
 * The run when it is over. Cancels it where the signal aborts, and then waits for that. Waits for a service that cannot be
 * reached, too, unless the signal aborts.
 */
export async function followRun(
  api: Api,
  id: string,
  { print, signal }: { print: (line: string) => void; signal?: AbortSignal | undefined },
): Promise<Run> {
  let after = -1;
  let isCancelled = false;
  const tell = async (): Promise<boolean> => {
    const page = bodyOf<{ lines: Line[]; has_more: boolean }>(
      await api.get(`/functions/runs/${id}/lines?after=${after}`),
    );
    for (const { position, level, message } of page.lines) {
      print(lineOf(level, message));
      after = position;
    }
    return page.has_more;
  };
  const look = async (): Promise<Run | undefined> => {
    const run = await getRun(api, id);
    // What the end stored before itself is read behind it.
    while (await tell());
    if (['succeeded', 'failed', 'cancelled'].includes(run.state)) return run;
    if (signal?.aborted && !isCancelled) {
      bodyOf(await api.post(`/functions/runs/${id}/cancel`, {}));
      isCancelled = true;
    }
    return undefined;
  };
  let goneSince: number | undefined;
  for (;;) {
    try {
      const run = await look();
      if (run !== undefined) return run;
      goneSince = undefined;
    } catch (error) {
      const isLong = goneSince !== undefined && Date.now() - goneSince > maxOutageMs;
      if (!(error instanceof Unreachable) || isLong || signal?.aborted) throw error;
      if (goneSince === undefined)
        print('The service cannot be reached. The run goes on when it is back; waiting.');
      goneSince ??= Date.now();
    }
    await pause(pollMs, isCancelled ? undefined : signal);
  }
}

export async function getRun(api: Api, id: string): Promise<Run> {
  return bodyOf<Run>(await api.get(`/functions/runs/${id}`));
}

/** How a line of a function's log is shown, wherever it runs. */
export function lineOf(level: string, message: string): string {
  return `  ${level === 'info' ? '' : `${level}: `}${message}`;
}

/** What a run came to, in lines. */
export function endOf(run: Run): string[] {
  const lines = Object.entries(run.counts).map(
    ([model, { added, updated, deleted, unchanged }]) =>
      `${model}: ${added} added, ${updated} updated, ${deleted} deleted, ${unchanged} unchanged`,
  );
  if (run.state === 'succeeded') return [...lines, 'The run succeeded.'];
  const { code = '', message = '', payload } = run.error ?? {};
  const places = [...(payload?.stack ?? '').matchAll(/[^\s()]+\.ts:\d+:\d+/g)].map(
    ([place]) => `  at ${place}`,
  );
  const verb = run.state === 'failed' ? 'failed' : 'was cancelled';
  return [...lines, `The run ${verb}${code && `: ${message} (${code})`}`, ...places];
}

/** Ends early, without a fault, where the signal aborts. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener('abort', end);
  });
}
