import { randomUUID } from 'node:crypto';

/**
 * Ids of requests: UUIDs of version 8 (RFC 9562 §5.8), random for all of a process and counted behind that. They tell
 * requests apart and are no secret.
 */
export function requestIds(): () => string {
  const random = randomUUID();
  const start = `${random.slice(0, 14)}8${random.slice(15, 24)}`;
  let count = 0;
  return () => start + (count++).toString(16).padStart(12, '0');
}
