/** Every fault that can be switched on, by name; GET /_sandbox/faults lists the same. */
import { API_CASES } from './api-cases.ts';
import type { FaultCase } from './case.ts';
import { OAUTH_CASES } from './oauth-cases.ts';

export const FAULT_CASES = { ...OAUTH_CASES, ...API_CASES } satisfies Record<string, FaultCase>;

/** The name of a fault that exists. */
export type FaultName = keyof typeof FAULT_CASES;

/** Whether a text names a fault that exists. */
export function isFaultName(name: string): name is FaultName {
  return Object.hasOwn(FAULT_CASES, name);
}

/** The table's line of a fault. */
export function caseOf(name: FaultName): FaultCase {
  return FAULT_CASES[name];
}
