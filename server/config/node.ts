import { oneOf } from './setting-values.ts';

/** What a node does of all there is to do. */
const roles = ['all', 'api', 'worker'] as const;
export type Role = (typeof roles)[number];

/** How a node takes part among others, and how it leaves them. */
export type NodeConfig = {
  role: Role;
  /** How long requests in flight may take to end after a stop was asked for. */
  drainMs: number;
  /** How long a node that was told to stop goes on taking requests, so that balancers notice in time. */
  drainDelayMs: number;
};

/** TRELLIS_ROLE and what a stop may take. */
export function readNode(read: (name: string) => string | undefined, faults: string[]): NodeConfig {
  const role = oneOf(read('TRELLIS_ROLE'), {
    name: 'TRELLIS_ROLE',
    allowed: roles,
    fallback: 'all',
    faults,
  });
  const drainMs = readSeconds(read('TRELLIS_DRAIN_SECONDS'), {
    name: 'TRELLIS_DRAIN_SECONDS',
    fallback: '10',
    faults,
  });
  const drainDelayMs = readSeconds(read('TRELLIS_DRAIN_DELAY_SECONDS'), {
    name: 'TRELLIS_DRAIN_DELAY_SECONDS',
    fallback: '0',
    faults,
  });
  return { role, drainMs, drainDelayMs };
}

function readSeconds(
  text: string | undefined,
  { name, fallback, faults }: { name: string; fallback: string; faults: string[] },
): number {
  const seconds = text ?? fallback;
  if (!/^\d{1,3}$/.test(seconds)) {
    faults.push(`${name} must be a number of seconds from 0 to 999, it is "${seconds}"`);
  }
  return Number(seconds) * 1000;
}
