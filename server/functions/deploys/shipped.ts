/**
 * Functions that ship with the service: what there is for a provider, putting one on an integration, and keeping those that
 * were put there up with the service.
 *
 * They are deployed like any other, with the origin `shipped`: no deploy of others removes them, and one of the same name
 * takes their place. Does not own how their bundles are made (`server/shipped-functions.ts`).
 */
import type { Db, Queryable } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { Logger } from '../../log.ts';
import type { Kind } from './definition.ts';
import { type Deploys, deploy, type Order } from './deploy.ts';
import { digestOf, type Examined, examineAll, type Given } from './examine.ts';
import { type DeployedFunction, getFunction, listFunctions } from './store.ts';

export type ShippedBundle = { provider: string; kind: Kind; name: string; code: string; source: string };

export type ShippedFunctions = {
  /** All of a provider, described. They are looked at where functions of the environment run. */
  list(of: { provider: string; environmentId: number }): Promise<Examined[]>;
  /**
   * Puts one on an integration, or brings the one that is there up to date. Throws `not_found` where nothing of that name
   * ships for the integration's provider, `function_exists` where another one has the name.
   */
  enable(of: Which & { actor: string }): Promise<DeployedFunction>;
  /**
   * Brings all that were put somewhere to the version that ships by now; for the start of a node. Of several nodes one makes
   * the version, and an older one that somebody let run again stays until there is a new one. One that fails is logged, and
   * keeps none of the others from it. Answers how many were changed.
   */
  upgrade(): Promise<number>;
};

type Which = { environmentId: number; integrationKey: string; kind: Kind; name: string };

type Parts = Deploys & { log: Logger; bundles: () => Promise<ShippedBundle[]> };

export function createShipped({ bundles: make, log, ...deploys }: Parts): ShippedFunctions {
  const { db, describe } = deploys;
  const bundles = once(make);
  const described = new Map<string, Promise<Examined[]>>();

  async function place(
    given: Given,
    by: { environmentId: number; actor: string; permit: NonNullable<Order['permit']> },
  ) {
    await deploy(deploys, { ...by, given: [given], reconcile: 'none', origin: 'shipped' });
  }

  /** Whether it was changed. */
  async function bringUp(placed: Placed, shipped: ShippedBundle): Promise<boolean> {
    const { environmentId, integrationKey, id } = placed;
    const digest = digestOf(shipped.code, shipped.source);
    if (placed.digests.some((known) => known.equals(digest))) return false;
    // Somebody may have removed it, or put something else in its place, or another node was faster.
    let isStill = true;
    await place(givenOf(integrationKey)(shipped), {
      ...{ environmentId, actor: 'service' },
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
        ...{ environmentId, actor },
        async permit(_tx, { changed, unchanged }) {
          // It may have come since it was looked for.
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
          log.warn(`functions: "${name}" of ${integrationKey} ships no longer; it stays as it is`);
          continue;
        }
        try {
          if (await bringUp(one, found)) count += 1;
        } catch (error) {
          log.error({ err: error }, `functions: "${name}" of ${integrationKey} was not brought up to date`);
        }
      }
      return count;
    },
  };
}

function givenOf(integrationKey: string): (of: ShippedBundle) => Given {
  return ({ kind, name, code, source }) => ({
    ...{ integrationKey, kind, name, code, source },
    ...{ features: [], sdkVersion: null, path: [name] },
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

/** Shipped functions of all environments, or the one of an ID, with the digests of all versions that they had. */
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

/** Calls `make` at the first call, and again after a call that failed. */
function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => {
    made ??= make().catch((error) => {
      made = undefined;
      throw error;
    });
    return made;
  };
}
