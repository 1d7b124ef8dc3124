// Nodes on a database and a token endpoint of one test, with a clock that they share.

import { afterEach, beforeEach } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { openRefreshBench, type RefreshBench } from '../../../test/support/refresh-bench.ts';
import { type NodeSettings, openRefreshNode, type RefreshNode } from '../../../test/support/refresh-node.ts';
import type { Grant, Rotation } from '../../../test/support/token-provider.ts';
import type { OAuth2Credentials } from '../../auth-modes/oauth2-credentials.ts';
import type { AppError } from '../../errors.ts';
import type { Fetch } from '../../outbound/outbound.ts';
import type { RefreshTiming } from './refresh.ts';

export const name = 'ada';
export const hour = 3_600_000;
export const timeoutMs = 600;
const ordinary = { storeMs: 200, patienceMs: 5_000 };

/** The resources of one test, closed when the test ends. */
class RefreshTest {
  /** The time of every node's clock, in milliseconds. */
  time = Date.now();
  readonly #nodes: RefreshNode[] = [];
  #bench: RefreshBench | undefined;

  get bench(): RefreshBench {
    if (this.#bench === undefined) throw new Error('open() comes first');
    return this.#bench;
  }

  /** Creates the connection `name`, whose token has just expired. */
  async open(rotation: Rotation, timing: Partial<RefreshTiming> & { limitMs?: number } = {}): Promise<void> {
    const { limitMs = timeoutMs, ...changed } = timing;
    this.#bench = await openRefreshBench({
      rotation,
      timeoutMs: limitMs,
      timing: { ...ordinary, ...changed },
    });
    await this.#bench.connect(name, new Date(this.time));
  }

  readonly now = () => new Date(this.time);

  /** Another node; `through` intercepts its requests to the provider, `patienceMs` replaces that of `open`. */
  node({
    through,
    target,
    patienceMs = this.bench.settings.timing.patienceMs,
  }: {
    through?: Fetch;
    target?: NodeSettings['target'];
    patienceMs?: number;
  } = {}): RefreshNode {
    const { settings: given } = this.bench;
    const settings = {
      ...given,
      ...(target && { target }),
      name: String(this.#nodes.length),
      timing: { ...given.timing, patienceMs },
    };
    const opened = openRefreshNode(settings, { now: this.now, ...(through && { through }) });
    this.#nodes.push(opened);
    return opened;
  }

  get grant(): Grant {
    return this.bench.provider.grant(name);
  }

  async fresh(node: RefreshNode): Promise<OAuth2Credentials> {
    return (await node.credentials.fresh(await node.live(name))) as OAuth2Credentials;
  }

  /** Resolves when a node holds the lease. */
  async untilLeased(): Promise<void> {
    const held = () => this.bench.db.query('select from connection where refresh_until > now()');
    while ((await held()).length === 0) await sleep(10);
  }

  /** As if its holder was frozen for the length of the lease. */
  async endLease(): Promise<void> {
    await this.bench.db.query(
      "update connection set refresh_until = now() - interval '1 second' where refresh_until > now()",
    );
  }

  async close(): Promise<void> {
    await Promise.all(this.#nodes.map((node) => node.close()));
    await this.#bench?.close();
  }
}

/** Call it once in a file: the result belongs to the running test. */
export function refreshTests(): () => RefreshTest {
  let current: RefreshTest;
  beforeEach(() => {
    current = new RefreshTest();
  });
  afterEach(() => current.close());
  return () => current;
}

export function codeOf(work: Promise<unknown>): Promise<string> {
  return work.then(
    () => 'success',
    (error: AppError) => error.code,
  );
}
