import { AppError } from '../errors.ts';
import { holdsScope, type KeyCaller, type Scope, type UserCaller } from '../http/caller.ts';
import { type ProxyRule, proxyRuleText } from '../http/proxy-rule.ts';
import type { Key } from './keys.ts';

/** What a key may do, and until when. */
export type Reach = Pick<Key, 'scopes' | 'proxyRules' | 'expiresAt'>;

/**
 * Throws `forbidden`, saying what exceeds it, unless all that this key may do, its maker may do too: by its scopes, by
 * its rules of the proxy, and by its time. So no key makes, or makes of another, one that could do more than itself. A
 * maker has no rate limit (`key-routes.ts`).
 */
export function requireWithin(
  key: Reach,
  maker: Pick<KeyCaller | UserCaller, 'scopes' | 'proxyRules' | 'expiresAt'>,
): void {
  const beyond = key.scopes.filter((scope) => !holdsScope(maker.scopes, scope as Scope));
  if (beyond.length > 0) throw wider(`it lacks the scope ${beyond.join(', ')}`);
  const { proxyRules: makersRules = [] } = maker;
  if (!areRulesWithin(key.proxyRules, makersRules)) {
    throw wider('its rules must stand in the new ones: all that deny, and of those that allow at least one');
  }
  const ends = maker.expiresAt?.getTime();
  if (ends !== undefined && (key.expiresAt === undefined || key.expiresAt.getTime() > ends))
    throw wider(`it ends itself at ${maker.expiresAt?.toISOString()}`);
}

/** Whether what the rules let pass, these others let pass too. Told by the rules' texts alone, so that it is certain. */
function areRulesWithin(rules: readonly ProxyRule[], others: readonly ProxyRule[]): boolean {
  const textsOf = (list: readonly ProxyRule[], effect: ProxyRule['effect']) =>
    list.filter((rule) => rule.effect === effect).map(proxyRuleText);
  const denied = new Set(textsOf(rules, 'deny'));
  if (!textsOf(others, 'deny').every((text) => denied.has(text))) return false;
  const allowable = new Set(textsOf(others, 'allow'));
  const allowed = textsOf(rules, 'allow');
  return allowable.size === 0 || (allowed.length > 0 && allowed.every((text) => allowable.has(text)));
}

/** The most that both let do, by the rules' texts: `one` itself where the other one lets do all that it does. */
export function commonReach(one: Reach, other: Reach): Reach {
  const ends = [one.expiresAt, other.expiresAt].filter((at) => at !== undefined);
  return {
    scopes: commonScopes(one.scopes, other.scopes),
    proxyRules: commonRules(one.proxyRules, other.proxyRules),
    expiresAt: ends.sort((a, b) => a.getTime() - b.getTime())[0],
  };
}

function commonScopes(one: readonly string[], other: readonly string[]): readonly string[] {
  if (other.includes('*')) return one;
  return one.includes('*') ? other : one.filter((scope) => other.includes(scope));
}

function commonRules(one: readonly ProxyRule[], other: readonly ProxyRule[]): readonly ProxyRule[] {
  const isAllowing = ({ effect }: ProxyRule) => effect === 'allow';
  const lacking = (rules: readonly ProxyRule[]) => {
    const texts = new Set(rules.map(proxyRuleText));
    return (rule: ProxyRule) => !texts.has(proxyRuleText(rule));
  };
  const added = other.filter(lacking(one));
  if (!one.some(isAllowing) || !other.some(isAllowing)) return [...one, ...added];
  const isForeign = lacking(other);
  const kept = one.filter((rule) => !isAllowing(rule) || !isForeign(rule));
  const denied = added.filter((rule) => !isAllowing(rule));
  if (kept.some(isAllowing)) return [...kept, ...denied];
  // Without one that allows, rules let all pass.
  const nothing: ProxyRule = { effect: 'deny', path: '/**' };
  return [...one, ...[...denied, nothing].filter(lacking(one))];
}

function wider(reason: string): AppError {
  return new AppError('forbidden', `A key gives no more than it has: ${reason}.`);
}
