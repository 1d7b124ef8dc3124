/**
 * Deploys functions: examined bundles become the current versions, all in one transaction. A function gets a new version only if
 * its text, its label or its definition changed.
 */
import { isDeepStrictEqual } from 'node:util';
import { writeAudit } from '../../activity/audit.ts';
import type { Db, Queryable, Tx } from '../../db/pool.ts';
import { AppError, type FieldError } from '../../errors.ts';
import type { Kind } from './definition.ts';
import { type Describe, type Examined, examineAll, type Given, maxFaults, titleOf } from './examine.ts';
import { queueModelChangesEvent } from './model-changes.ts';
import {
  addVersion,
  type DeployedFunction,
  listFunctions,
  lockFunctions,
  type Origin,
  removeFunction,
} from './store.ts';

/** Which functions outside of the deploy are removed: none, all of the same origin, or those of its integrations. */
export type Reconcile = 'none' | 'all' | 'integrations';

export type Order = {
  environmentId: number;
  given: readonly Given[];
  reconcile: Reconcile;
  origin: Origin;
  /** Called in the transaction of the deploy, which locks functions. Throws to prevent the deploy. */
  permit?: (tx: Tx, plan: Plan) => Promise<void>;
};

/** The changes of a deploy. */
export type Plan = {
  added: Examined[];
  changed: { before: DeployedFunction; after: Examined }[];
  unchanged: { before: DeployedFunction; after: Examined }[];
  removed: DeployedFunction[];
  /** The names of models that no sync of the integrations saves after the deploy. */
  deletedModels: string[];
};

type Deployed = { integrationKey: string; kind: Kind; name: string; number: number; models: string[] };

export type Deploys = {
  db: Db;
  describe: Describe;
  now: () => Date;
  /** Called in the transaction of the deploy, after all changes of functions. */
  afterDeploy: (tx: Tx, at: { environmentId: number; at: Date }) => Promise<void>;
};

/** The changes that `deploy` would make. Throws as `deploy`. */
export async function plan({ db, describe }: Pick<Deploys, 'db' | 'describe'>, order: Order): Promise<Plan> {
  const examined = await examinedOf(order, describe);
  await integrationIds(db, order);
  return planned(db, { ...order, examined });
}

/**
 * Deploys all functions or none. Throws `invalid_function` with up to 100 faults, and `unknown_provider_config` if an
 * integration is missing. Returns each given function, in the given order, with the number of its current version.
 */
export async function deploy(
  { db, describe, now, afterDeploy }: Deploys,
  { actor, ...order }: Order & { actor: string },
): Promise<Deployed[]> {
  const { environmentId, origin } = order;
  const examined = await examinedOf(order, describe);
  return db.transaction(async (tx) => {
    await lockFunctions(tx, environmentId);
    const ids = await integrationIds(tx, order);
    const plan = await planned(tx, { ...order, examined });
    await order.permit?.(tx, plan);
    const { added, changed, unchanged, removed } = plan;
    const at = now();
    const audit = (action: string, title: string, details: Record<string, string | number>) =>
      writeAudit(tx, { environmentId, actor, action, target: title, details });
    const numbers = new Map(unchanged.map(({ before, after }) => [after, before.number]));
    for (const one of [...added, ...changed.map(({ after }) => after)]) {
      const by = { environmentId, origin, actor, at, integrationId: ids.get(one.integrationKey)! };
      const { number } = await addVersion(tx, one, by);
      numbers.set(one, number);
      await audit('function.deployed', titleOf(one), { version: number, label: one.label });
    }
    for (const { before, after } of changed) {
      const { integrationKey, name, definition } = after;
      const later = { number: numbers.get(after)!, definition };
      await queueModelChangesEvent(tx, { environmentId, integrationKey, name, before, after: later });
    }
    for (const one of removed) {
      await removeFunction(tx, { environmentId, functionId: one.id });
      await audit('function.removed', titleOf(one), { version: one.number });
    }
    await afterDeploy(tx, { environmentId, at });
    return examined.map((one) => ({
      integrationKey: one.integrationKey,
      kind: one.kind,
      name: one.name,
      number: numbers.get(one)!,
      models: one.definition.models,
    }));
  });
}

async function examinedOf({ given, environmentId }: Order, describe: Describe): Promise<Examined[]> {
  const twice = duplicateFaults(given);
  if (twice.length > 0) throw invalidFunction(twice);
  const { examined, faults } = await examineAll(given, { describe, environmentId });
  if (faults.length > 0) throw invalidFunction(faults);
  return examined;
}

function invalidFunction(faults: FieldError[]): AppError {
  const [{ message } = { message: '' }] = faults;
  const more = faults.length > 1 ? ` (and ${faults.length - 1} more, see \`errors\`)` : '';
  return new AppError('invalid_function', `${message}${more}. Nothing was deployed.`, { errors: faults });
}

function duplicateFaults(given: readonly Given[]): FieldError[] {
  const titles = new Set<string>();
  return given.flatMap((one) => {
    const title = titleOf(one);
    if (!titles.has(title)) {
      titles.add(title);
      return [];
    }
    return [{ code: 'custom', message: `${title}: appears twice`, path: one.path.map(String) }];
  });
}

async function integrationIds(db: Queryable, { environmentId, given }: Order): Promise<Map<string, number>> {
  const keys = [...new Set(given.map(({ integrationKey }) => integrationKey))];
  const rows = await db.query<{ id: number; key: string }>(
    `select id, key
     from integration
     where environment_id = $1 and key = any ($2)
     for key share`,
    [environmentId, keys],
  );
  const ids = new Map(rows.map(({ id, key }) => [key, id]));
  const missing = keys.filter((key) => !ids.has(key));
  if (missing.length === 0) return ids;
  const named = missing.map((key) => `"${key}"`).join(', ');
  const errors = given
    .filter(({ integrationKey }) => missing.includes(integrationKey))
    .slice(0, maxFaults)
    .map((one) => ({
      code: 'custom',
      message: `${titleOf(one)}: no integration of this environment has the ID "${one.integrationKey}"`,
      path: one.path.map(String),
    }));
  throw new AppError(
    'unknown_provider_config',
    `No integration of this environment has the ID ${named}. Create it first. Nothing was deployed.`,
    { status: 400, errors },
  );
}

async function planned(
  db: Queryable,
  { environmentId, examined, reconcile, origin }: Order & { examined: Examined[] },
): Promise<Plan> {
  const all = await listFunctions(db, { environmentId });
  const known = new Map(all.map((one) => [titleOf(one), one]));
  const result: Plan = { added: [], changed: [], unchanged: [], removed: [], deletedModels: [] };
  for (const after of examined) {
    const before = known.get(titleOf(after));
    if (before === undefined) result.added.push(after);
    else if (isSame(before, after)) result.unchanged.push({ before, after });
    else result.changed.push({ before, after });
  }
  const titles = new Set(examined.map(titleOf));
  const keys = new Set(examined.map(({ integrationKey }) => integrationKey));
  if (reconcile !== 'none') {
    result.removed = all.filter(
      (one) =>
        one.origin === origin &&
        !titles.has(titleOf(one)) &&
        (reconcile === 'all' || keys.has(one.integrationKey)),
    );
  }
  result.deletedModels = modelsLost(all, { ...result, examined });
  return result;
}

function isSame(before: DeployedFunction, { digest, definition, label }: Examined): boolean {
  return (
    before.digest.equals(digest) && before.label === label && isDeepStrictEqual(before.definition, definition)
  );
}

function modelsLost(
  all: readonly DeployedFunction[],
  { examined, removed, changed }: Pick<Plan, 'removed' | 'changed'> & { examined: Examined[] },
): string[] {
  const gone = new Set<DeployedFunction>([...removed, ...changed.map(({ before }) => before)]);
  const modelsOf = (one: Pick<DeployedFunction, 'integrationKey' | 'definition'>) =>
    one.definition.models.map((model) => `${one.integrationKey}/${model}`);
  const kept = new Set([...all.filter((one) => !gone.has(one)), ...examined].flatMap(modelsOf));
  const lost = [...gone].flatMap(modelsOf).filter((model) => !kept.has(model));
  return [...new Set(lost.map((model) => model.slice(model.indexOf('/') + 1)))];
}
