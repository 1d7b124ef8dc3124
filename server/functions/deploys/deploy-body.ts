/** What official command lines send to deploy. They differ by version: fields that count for nothing here are passed over. */
import { z } from 'zod';
import { integrationKey } from '../../integrations/wire.ts';
import { functionName, type Kind, occasions } from './definition.ts';
import type { Reconcile } from './deploy.ts';
import type { Given } from './examine.ts';

const maxFunctions = 5_000;
/** `ts` is the source, to be read back. */
const fileBody = z.looseObject({ js: z.string().min(1), ts: z.string().optional() });

export const deployBody = z.looseObject({
  flowConfigs: z
    .array(
      z.looseObject({
        syncName: functionName,
        providerConfigKey: integrationKey,
        type: z.enum(['sync', 'action', 'on-event']),
        fileBody,
        features: z.array(z.string().max(100)).max(100).optional(),
      }),
    )
    .max(maxFunctions),
  onEventScriptsByProvider: z
    .array(
      z.looseObject({
        providerConfigKey: integrationKey,
        scripts: z
          .array(z.looseObject({ name: functionName, fileBody, event: z.enum(occasions).optional() }))
          .max(maxFunctions),
      }),
    )
    .max(maxFunctions)
    .optional(),
  /** Whether functions that are not named are removed: all of the environment, or with `integration` those of the integrations named. */
  reconcile: z.boolean().default(false),
  deployMode: z.enum(['all', 'single', 'integration']).default('all'),
  debug: z.boolean().optional(),
  sdkVersion: z.string().max(100).optional(),
});
type DeployBody = z.infer<typeof deployBody>;

const kindOf = { sync: 'sync', action: 'action', 'on-event': 'on_event' } as const satisfies Record<
  string,
  Kind
>;

/** The functions of a body, and which of those that it does not name are removed. */
export function readDeployBody(body: DeployBody): { given: Given[]; reconcile: Reconcile } {
  const { flowConfigs, onEventScriptsByProvider = [], sdkVersion = null } = body;
  const flows = flowConfigs.map(
    ({ syncName, providerConfigKey, type, fileBody: { js, ts }, features = [] }, at) => ({
      integrationKey: providerConfigKey,
      kind: kindOf[type],
      name: syncName,
      ...{ code: js, source: ts ?? null, features, sdkVersion },
      path: ['flowConfigs', at, 'fileBody', 'js'],
    }),
  );
  const events = onEventScriptsByProvider.flatMap(({ providerConfigKey, scripts }, at) =>
    scripts.map(({ name, fileBody: { js, ts } }, script) => ({
      integrationKey: providerConfigKey,
      kind: 'on_event' as const,
      name,
      ...{ code: js, source: ts ?? null, features: [], sdkVersion },
      path: ['onEventScriptsByProvider', at, 'scripts', script, 'fileBody', 'js'],
    })),
  );
  return { given: [...flows, ...events], reconcile: reconcileOf(body) };
}

function reconcileOf({ reconcile, deployMode }: DeployBody): Reconcile {
  if (!reconcile || deployMode === 'single') return 'none';
  return deployMode === 'all' ? 'all' : 'integrations';
}
