import { z } from 'zod';
import type { ProviderDefinition } from './definition.ts';

export const explainedScopeWire = z.object({
  scope: z.string(),
  /** In English; null where the provider's definition does not know the scope. */
  description: z.string().nullable(),
  /** By language: `de`, `fr`, `es`, `ja`, as far as the definition has them. */
  translations: z.record(z.string(), z.string()),
});

/** A scope in words for the person who is asked to allow it. */
export function explainScope(
  { scopes }: Pick<ProviderDefinition, 'scopes'>,
  scope: string,
): z.infer<typeof explainedScopeWire> {
  const known = Object.hasOwn(scopes.catalogue, scope) ? scopes.catalogue[scope] : undefined;
  return { scope, description: known?.description ?? null, translations: known?.translations ?? {} };
}

/**
 * Which of the wanted scopes a grant does not hold. Order and further scopes do not matter, and a scope counts as
 * granted under each of its aliases: Google answers `email` with `https://www.googleapis.com/auth/userinfo.email`. So does
 * one that the provider never names: Microsoft gives what `offline_access` asks for and keeps silent about it.
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
