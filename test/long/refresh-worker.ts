// A process that refreshes connections when it is told to. Started by refresh.ts, with its settings as argument.

import { type NodeSettings, openRefreshNode } from '../support/refresh-node.ts';

/** `at` is what the clock shows from now on. */
export type Ask = { id: number; connection: string; at: number };
export type Told = { id: number; error?: string };

// `node --test` without a pattern takes every file under test/ for a test.
if (process.argv[2] !== undefined && process.send) {
  let at = 0;
  const node = openRefreshNode(JSON.parse(process.argv[2]) as NodeSettings, { now: () => new Date(at) });
  const tell = (told: Told | 'ready') => process.send?.(told);
  process.on('message', async (ask: Ask) => {
    at = ask.at;
    try {
      await node.credentials.fresh(await node.live(ask.connection));
      tell({ id: ask.id });
    } catch (error) {
      tell({ id: ask.id, error: String((error as { code?: unknown }).code ?? error) });
    }
  });
  process.on('disconnect', () => process.exit());
  tell('ready');
}
