import type { Scope } from '../../server/http/auth/caller.ts';
import { deprecations, documentedName } from '../../server/http/deprecation.ts';
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
  /** Its `id`. */
  connectionRow: number;
  headers: Record<string, string>;
  cursor: string;
  operationId: string;
  /** The session by which the connection was made. */
  sessionId: number;
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

/** The deprecated routes as the document writes them, by their names. */
const earlierNames = new Map(
  deprecations.map(({ route, successor }) => [documentedName(route), documentedName(successor)]),
);

/** The present name of a deprecated route; the name of any other route as it is. */
export function presentName(name: string): string {
  return earlierNames.get(name) ?? name;
}

/** Each deprecated route right behind its successor, with the same request. */
export function withEarlierNames(table: Record<string, Scenario>): Record<string, Scenario> {
  const rows = Object.entries(table).flatMap(([name, scenario]): [string, Scenario][] => [
    [name, scenario],
    ...[...earlierNames]
      .filter(([, present]) => present === name)
      .map(([earlier]): [string, Scenario] => [earlier, requestedBy(earlier, scenario)]),
  ]);
  return Object.fromEntries(rows);
}

function requestedBy(earlier: string, scenario: Scenario): Scenario {
  const [, pattern = ''] = presentName(earlier).split(' ');
  const [, url = ''] = earlier.split(' ');
  const matcher = new RegExp(`^${pattern.replace(/\{(\w+)\}/g, '(?<$1>[^/?]+)')}(?=\\?|$)`);
  return {
    ...scenario,
    request: (given) => {
      const { path, ...options } = scenario.request(given);
      const { groups = {} } = matcher.exec(path)!;
      // A variant can be added once.
      const argumentFor = (name: string) => (name === 'variant' ? `${groups.variant}-2` : groups[name]!);
      const earlierPath = url.replace(/\{(\w+)\}/g, (_, name: string) => argumentFor(name));
      return { ...options, path: path.replace(matcher, () => earlierPath) };
    },
  };
}
