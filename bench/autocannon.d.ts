/** The part of autocannon, which has no types of its own, that the benchmarks use. */
declare module 'autocannon' {
  import type { EventEmitter } from 'node:events';

  type Options = { url: string; headers?: Record<string, string>; connections: number; duration: number };
  type Result = { '2xx': number; non2xx: number; errors: number };
  type Run = EventEmitter<{ response: [client: unknown, status: number, bytes: number, ms: number] }> &
    Promise<Result>;

  export default function autocannon(options: Options): Run;
}
