/** The messages between the supervisor and its processes, over the channel of `node:cluster`. */
import type { DbTarget } from '../db/pool.ts';
import type { Building } from '../http/pages/static.ts';
import type { NodeSurroundings } from '../main.ts';
import type { ProcessMetrics } from '../metrics/metrics.ts';

/** What a process needs beside its own settings. */
export type ProcessStart = {
  /** The label of its metrics and log lines, and the end of its node's name. */
  name: string;
  /** Of the supervisor, which has migrated the database. */
  version: string;
  port: number;
  baseUrl: string;
  target: DbTarget;
  sandbox: NodeSurroundings['sandbox'];
};

export type ToProcess =
  | { is: 'start'; start: ProcessStart; building: Building }
  | { is: 'building'; building: Building }
  | { is: 'report'; id: number }
  | { is: 'collected'; id: number; processes: ProcessMetrics[] }
  /** `isReplaced`: another process continues at the same port. */
  | { is: 'stop'; isReplaced: boolean };

export type ToSupervisor =
  /** It can receive messages. */
  | { is: 'loaded' }
  | { is: 'ready' }
  | { is: 'failed'; reason: string }
  | { is: 'collect'; id: number }
  | { is: 'reported'; id: number; families: ProcessMetrics['families'] };
