/**
 * Asks a service how it is, from a process of its own, so that what the attacker does to its own does not count: `/health` on
 * connections that stay and on new ones, and an ordinary call with a key. Arguments: the address and the key.
 */
import { Agent, request } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';

const [baseUrl = '', key = ''] = process.argv.slice(2);
export type Probed = {
  /** Of `/health`, in ms. */
  health: { p50: number; p99: number; max: number; asked: number; failed: number };
  /** Of ordinary calls: how many were answered 200, told to come again, or anything else. */
  calls: { done: number; turnedAway: number; failed: number };
};

const staying = new Agent({ keepAlive: true, maxSockets: 64 });
const fresh = new Agent({ keepAlive: false });
let times: number[] = [];
let failed = 0;
const none = () => ({ done: 0, turnedAway: 0, failed: 0 });
let calls = none();

function ask(path: string, agent: Agent, headers: Record<string, string> = {}): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const sent = request(baseUrl + path, { agent, headers, timeout: 20_000 }, (answer) => {
    answer.resume().on('end', () => resolve(answer.statusCode ?? 0));
  });
  sent.on('timeout', () => sent.destroy(new Error('no answer'))).on('error', reject);
  sent.end();
  return promise;
}

/** Each at its time, whether the ones before are answered or not: a stall is seen by all that fall into it. */
async function every(ms: number, work: () => Promise<void>): Promise<never> {
  for (;;) {
    void work();
    await pause(ms);
  }
}

async function health(agent: Agent): Promise<void> {
  const startedMs = performance.now();
  const status = await ask('/health', agent).catch(() => 0);
  if (status === 200) times.push(performance.now() - startedMs);
  else failed += 1;
}

void every(20, () => health(staying));
void every(50, () => health(fresh));
void every(50, async () => {
  const status = await ask('/integrations', staying, { authorization: `Bearer ${key}` }).catch(() => 0);
  calls[status === 200 ? 'done' : status === 503 ? 'turnedAway' : 'failed'] += 1;
});

/** Told to, it says what it saw since it was told so before. */
process.on('message', () => {
  const sorted = times.sort((a, b) => a - b);
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  const seen = { p50: at(0.5), p99: at(0.99), max: at(1), asked: sorted.length + failed, failed };
  process.send?.({ health: seen, calls } satisfies Probed);
  [times, failed, calls] = [[], 0, none()];
});
process.on('disconnect', () => process.exit());
