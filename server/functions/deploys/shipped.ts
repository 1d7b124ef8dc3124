/**
 * Functions that ship with the service: the list for a provider, their deployment to an integration, and their upgrade.
 *
 * They are deployed as all others, with the origin `shipped`: a deploy of other functions does not remove them, and a function of
 * the same name replaces them. Does not own the compilation of their bundles (`server/functions-folder.ts`).
 */
import { keepResult } from '../../concurrency.ts';
import type { Db, Queryable } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { Logger } from '../../log.ts';
import type { Kind } from './definition.ts';
import { type Deploys, deploy, type Order } from './deploy.ts';
import { digestOf, type Examined, examineAll, type Given } from './examine.ts';
import { type DeployedFunction, getFunction, listFunctions } from './store.ts';

export type ShippedBundle = { provider: string; kind: Kind; name: string; code: string; source: string };

export type ShippedFunctions = {
  /** All functions of a provider, examined by the nodes that run functions of the environment. */
  list(of: { provider: string; environmentId: number }): Promise<Examined[]>;
  /**
   * Deploys a function to an integration, or upgrades it there. Throws `not_found` if no function of that name ships for the
   * integration's provider, and `function_exists` if another function has the name.
   */
  enable(of: Which & { actor: string }): Promise<DeployedFunction>;
  /**
   * Upgrades all deployed functions to the version that ships now, at the start of a node. One of several nodes adds the version.
   * After a roll back, the older version stays until a new one ships. A failure is logged, and does not affect the other
   * functions. Returns the number of changed functions.
   */
  upgrade(): Promise<number>;
};

type Which = { environmentId: number; integrationKey: string; kind: Kind; name: string };

type ShippedParts = Deploys & { log: Logger; bundles: () => Promise<ShippedBundle[]> };

export function createShipped({ bundles: make, log, ...deploys }: ShippedParts): ShippedFunctions {
  const { db, describe } = deploys;
  const bundles = keepResult(make);
  const described = new Map<string, Promise<Examined[]>>();

  async function place(
    given: Given,
    by: { environmentId: number; actor: string; permit: NonNullable<Order['permit']> },
  ) {
    await deploy(deploys, { ...by, given: [given], reconcile: 'none', origin: 'shipped' });
  }

  /** Whether the function was changed. */
  async function upgradeOne(placed: Placed, shipped: ShippedBundle): Promise<boolean> {
    const { environmentId, integrationKey, id } = placed;
    const digest = digestOf(shipped.code, shipped.source);
    if (placed.digests.some((known) => known.equals(digest))) return false;
    // Meanwhile it may have been removed, replaced, or upgraded by another node.
    let isStill = true;
    await place(givenOf(integrationKey)(shipped), {
      environmentId,
      actor: 'service',
      async permit(tx) {
        const [now] = await listPlaced(tx, id);
        isStill = now !== undefined && !now.digests.some((known) => known.equals(digest));
        if (!isStill) throw overtaken;
      },
    }).catch((error: unknown) => {
      if (error !== overtaken) throw error;
    });
    return isStill;
  }

  return {
    async list({ provider, environmentId }) {
      let known = described.get(provider);
      if (known === undefined) {
        const all = (await bundles()).filter((one) => one.provider === provider);
        known = examineAll(all.map(givenOf(provider)), { describe, environmentId }).then(
          ({ examined, faults }) => {
            if (faults.length > 0) throw new Error(faults.map(({ message }) => message).join('\n'));
            return examined;
          },
        );
        described.set(provider, known);
        known.catch(() => described.delete(provider));
      }
      return known;
    },

    async enable({ actor, ...which }) {
      const { environmentId, integrationKey, kind, name } = which;
      const provider = await providerOf(db, which);
      const found = (await bundles()).find(
        (one) => one.provider === provider && one.kind === kind && one.name === name,
      );
      if (found === undefined) {
        throw new AppError('not_found', `No function "${name}" of this type ships for ${provider}.`);
      }
      const [there] = await listFunctions(db, which);
      if (there !== undefined && there.origin !== 'shipped') throw new AppError('function_exists');
      if (there?.digest.equals(digestOf(found.code, found.source))) return there;
      await place(givenOf(integrationKey)(found), {
        environmentId,
        actor,
        async permit(_tx, { changed, unchanged }) {
          // Another function may have been deployed meanwhile.
          const others = [...changed, ...unchanged].filter(({ before }) => before.origin !== 'shipped');
          if (others.length > 0) throw new AppError('function_exists');
        },
      });
      return getFunction(db, which);
    },

    async upgrade() {
      const placed = await listPlaced(db);
      if (placed.length === 0) return 0;
      const shipped = await bundles();
      let count = 0;
      for (const one of placed) {
        const { provider, kind, name, integrationKey } = one;
        const found = shipped.find(
          (each) => each.provider === provider && each.kind === kind && each.name === name,
        );
        if (found === undefined) {
          log.warn(
            `functions: "${name}" of ${integrationKey} is no longer included in the service; the deployed version keeps running`,
          );
          continue;
        }
        try {
          if (await upgradeOne(one, found)) count += 1;
        } catch (error) {
          log.error({ err: error }, `functions: "${name}" of ${integrationKey} could not be updated`);
        }
      }
      return count;
    },
  };
}

function givenOf(integrationKey: string): (of: ShippedBundle) => Given {
  return ({ kind, name, code, source }) => ({
    integrationKey,
    kind,
    name,
    code,
    source,
    features: [],
    sdkVersion: null,
    path: [name],
  });
}

/** Throws `not_found`. */
async function providerOf(db: Db, { environmentId, integrationKey }: Which): Promise<string> {
  const [found] = await db.query<{ provider: string }>(
    'select provider from integration where environment_id = $1 and key = $2',
    [environmentId, integrationKey],
  );
  if (found === undefined) {
    throw new AppError('not_found', `No integration has the ID "${integrationKey}".`);
  }
  return found.provider;
}

type Placed = Which & { id: number; provider: string; digests: Buffer[] };

const overtaken = new Error('the function is another one by now');

/** Deployed functions that ship, of all environments or of an ID, with the digests of all their versions. */
function listPlaced(db: Queryable, id?: number): Promise<Placed[]> {
  return db.query<Placed>(
    `select
       function.id,
       function.environment_id as "environmentId",
       integration.key as "integrationKey",
       integration.provider,
       function.kind,
       function.name,
       array(
         select bundle.digest
         from function_version version
         join function_bundle bundle on bundle.id = version.bundle_id
         where version.function_id = function.id
       ) as digests
     from function
     join integration on integration.id = function.integration_id
     where function.origin = 'shipped' and ($1::bigint is null or function.id = $1)
     order by function.id`,
    [id ?? null],
  );
}
