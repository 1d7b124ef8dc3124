import { z } from 'zod';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import type { ProviderDefinition } from './definition.ts';

export const explainedScopeWire = z.object({
  scope: z.string(),
  /** In English; null if the provider's definition does not have the scope. */
  description: z.string().nullable(),
  /** By language: `de`, `fr`, `es`, `ja`, as far as the definition has them. */
  translations: z.record(z.string(), z.string()),
});
nameSchemas({ Scope: explainedScopeWire });

/** The description of a scope for the end user who grants it. */
export function explainScope(
  { scopes }: Pick<ProviderDefinition, 'scopes'>,
  scope: string,
): z.infer<typeof explainedScopeWire> {
  const known = Object.hasOwn(scopes.catalogue, scope) ? scopes.catalogue[scope] : undefined;
  return { scope, description: known?.description ?? null, translations: known?.translations ?? {} };
}

/**
 * The wanted scopes that a grant does not contain. Order and further scopes do not matter. A scope is granted under
 * each of its aliases: Google returns `https://www.googleapis.com/auth/userinfo.email` for `email`. So is a scope that
 * the provider never returns: Microsoft grants `offline_access` without naming it.
 */
export function missingScopes(
  definition: Pick<ProviderDefinition, 'scopes'>,
  { wanted, granted }: { wanted: readonly string[]; granted: readonly string[] },
): string[] {
  const held = new Set(
    [...granted, ...(definition.scopes.unnamed ?? [])].map((scope) => canonical(definition, scope)),
  );
  return [...new Set(wanted)].filter((scope) => !held.has(canonical(definition, scope)));
}

function canonical({ scopes }: Pick<ProviderDefinition, 'scopes'>, scope: string): string {
  const entry = Object.entries(scopes.catalogue).find(([, { aliases }]) => aliases.includes(scope));
  return entry?.[0] ?? scope;
}
