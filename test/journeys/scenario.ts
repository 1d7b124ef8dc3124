import type { Scope } from '../../server/http/auth/caller.ts';
import type { CallOptions } from '../support/trellis.ts';

/**
 * Every route of the interface with a request that works, and how it answers a key of another environment: the
 * objects of one environment do not exist for another.
 */
export type Scenario = {
  request: (with_: Fixture) => { path: string } & CallOptions;
  right: number;
  /** What the same request gives to a key of another environment. */
  foreign: number;
  /** Where docs/reference/scopes.md names several for the route: the one that this request needs. */
  scope?: Scope;
  /** Another scope that serves this request. */
  also?: Scope;
};
export type Fixture = {
  connectionId: string;
  headers: Record<string, string>;
  cursor: string;
  operationId: string;
  /** A key that can manage keys and nothing else. */
  keyId: number;
  /** An endpoint that is disabled, and a delivery that it did not take. */
  endpointId: number;
  deliveryId: number;
  /** Of the sync `things`. */
  runId: string;
  /** Of an action that was not waited for, and is over. */
  actionId: string;
};

export const key = 'google-sheet';
export const ofConnection =
  (path: string, body?: (with_: Fixture) => object): Scenario['request'] =>
  (given) => ({
    path: path.replace('{id}', given.connectionId).replace('{key}', key),
    headers: given.headers,
    ...(body && { body: body(given) }),
  });
export const inQuery = `provider_config_key=${key}`;
