/**
 * Which calls a key and an integration let through. Pure.
 *
 * A call is judged by its method and by the path that the provider is about to get, decoded once and read from where the
 * API's base address ends: a rule has the path that a caller writes behind `/proxy`. A path that two servers could read
 * as two different ones is refused wherever there are rules: what is not understood is not allowed.
 */
import { AppError } from '../errors.ts';
import { holdsScope, type ProxyCaller } from '../http/caller.ts';
import { type ProxyRule, proxyRuleText } from '../http/proxy-rule.ts';
import { decodedText } from '../http/query.ts';
import type { Integration } from '../integrations/store.ts';
import { type Overrides, overrideIn } from './overrides.ts';

/** The rules of one party to a call. Every party has to agree. */
export type RuleList = {
  readonly of: 'key' | 'integration' | 'ticket';
  readonly rules: readonly ProxyRule[];
  /** Also without rules, nothing may make the call another one than its method says. */
  readonly bindsMethod?: true;
};

export type JudgedCall = {
  readonly method: string;
  /** Path and query for the provider. */
  readonly target: string;
  /** The path of the API's base address, without a slash at the end. Absent: it has none. */
  readonly basePath?: string | undefined;
  /** Whether the caller sends it to an origin that is not the API's own. */
  readonly isElsewhere?: boolean;
  /** The path of the address that the caller chose in place of the API's, without a slash at the end. */
  readonly overridePath?: string | undefined;
  /** Those that go to the provider, names and values in turn. */
  readonly headers: readonly string[];
  /** What the API takes for overrides beside the usual ones. */
  readonly overrides?: Overrides | undefined;
};

/** Throws `proxy_rule_denied` (403), naming the rule, unless every list lets the call pass. */
export function requirePermission(lists: readonly RuleList[], call: JudgedCall): void {
  for (const list of lists) {
    const refusal = refusalBy(list, call);
    if (refusal === undefined) continue;
    const { of } = list;
    throw new AppError('proxy_rule_denied', `The rules of the ${of} refuse this call: ${refusal.reason}.`, {
      payload: { of, ...(refusal.rule !== undefined && { rule: refusal.rule }) },
    });
  }
}

/** Whether `requirePermission` would let it pass. */
export function isPermitted(lists: readonly RuleList[], call: JudgedCall): boolean {
  return lists.every((list) => refusalBy(list, call) === undefined);
}

/** Who has a say in a call of this caller, where anybody has rules. */
export function rulesOf(
  caller: ProxyCaller,
  { integration }: { integration: Pick<Integration, 'proxyRules'> },
): RuleList[] {
  const lists: RuleList[] = [];
  if (caller.proxyRules !== undefined) lists.push({ of: 'key', rules: caller.proxyRules });
  if (!holdsScope(caller.scopes, 'proxy:write')) lists.push(readOnly);
  if (caller.kind === 'ticket') lists.push({ of: 'ticket', rules: caller.ticket.rules });
  if (integration.proxyRules.length > 0) lists.push({ of: 'integration', rules: integration.proxyRules });
  return lists;
}

/** Of a key that may read alone, and of its tickets. */
const readOnly: RuleList = { of: 'key', rules: [], bindsMethod: true };

type Refusal = { reason: string; rule?: string };

function refusalBy(
  { rules: list, bindsMethod }: RuleList,
  {
    method,
    target,
    basePath = '',
    isElsewhere = false,
    overridePath = basePath,
    headers,
    overrides,
  }: JudgedCall,
): Refusal | undefined {
  if (list.length === 0 && bindsMethod !== true) return undefined;
  const [rawPath = '', query = ''] = splitQuery(target);
  const override = overrideIn(headers, { query, also: overrides });
  if (override !== undefined) return { reason: `"${override}" could make it another one` };
  if (list.length === 0) return undefined;
  const path = readPath(rawPath);
  const base = readPath(basePath);
  const chosen = readPath(overridePath);
  if (path === undefined || base === undefined || chosen === undefined)
    return { reason: 'its path can be read in more than one way' };
  const exact = behind(base.exact, path.exact) ?? (isElsewhere ? path.exact : undefined);
  if (exact === undefined) return { reason: "it leaves the path of the API's base address" };
  const rules = compiledOf(list);
  const meant = rules.filter(({ methods }) => isAmong(methods, method));
  // At an address of the caller's choice nobody knows where the API begins: what is denied is so from each beginning.
  const readings = [
    behind(base.folded, path.folded),
    behind(chosen.folded, path.folded),
    isElsewhere ? path.folded : undefined,
  ];
  const denying = meant.find(
    ({ effect, pattern }) =>
      effect === 'deny' && readings.some((reading) => reading !== undefined && matches(pattern, reading)),
  );
  if (denying !== undefined) return { reason: `"${denying.text}"`, rule: denying.text };
  if (rules.every(({ effect }) => effect === 'deny')) return undefined;
  const isAllowed = meant.some(({ effect, pattern }) => effect === 'allow' && matches(pattern, exact));
  return isAllowed ? undefined : { reason: 'none of them allows its method and path' };
}

/** What of a path follows its first segments; undefined where it begins with others. */
function behind(first: readonly string[], path: readonly string[]): readonly string[] | undefined {
  return first.every((segment, at) => segment === path[at]) ? path.slice(first.length) : undefined;
}

type Compiled = {
  readonly effect: ProxyRule['effect'];
  readonly methods: ReadonlySet<string> | undefined;
  /** Segments; of one that denies, folded. */
  readonly pattern: readonly string[];
  readonly text: string;
};

const compiled = new WeakMap<readonly ProxyRule[], readonly Compiled[]>();

/** Keys and integrations are read once a second at most, and each reading has a list of its own. */
function compiledOf(rules: readonly ProxyRule[]): readonly Compiled[] {
  let known = compiled.get(rules);
  if (known === undefined) {
    known = rules.map((rule) => {
      const { effect, methods, path } = rule;
      const segments = segmentsOf(path);
      return {
        effect,
        methods: methods && new Set(methods),
        pattern: effect === 'deny' ? segments.map(folded) : segments,
        text: proxyRuleText(rule),
      };
    });
    compiled.set(rules, known);
  }
  return known;
}

/** What may be read may be asked for without its body (RFC 9110 §9.3.2). */
function isAmong(methods: ReadonlySet<string> | undefined, method: string): boolean {
  return methods === undefined || methods.has(method) || (method === 'HEAD' && methods.has('GET'));
}

function matches(pattern: readonly string[], path: readonly string[]): boolean {
  const isOpen = pattern.at(-1) === '**';
  const fixed = isOpen ? pattern.length - 1 : pattern.length;
  if (isOpen ? path.length < fixed : path.length !== fixed) return false;
  for (let at = 0; at < fixed; at++) if (!matchesSegment(pattern[at]!, path[at]!)) return false;
  return true;
}

function matchesSegment(pattern: string, segment: string): boolean {
  const star = pattern.indexOf('*');
  if (star === -1) return pattern === segment;
  return (
    segment.length >= pattern.length - 1 &&
    segment.startsWith(pattern.slice(0, star)) &&
    segment.endsWith(pattern.slice(star + 1))
  );
}

/**
 * The segments of a path, exact for what is allowed and folded for what is denied; undefined where servers differ in
 * what they make of it: escapes that are none or hold a slash, a backslash or an escape once more, empty segments, path
 * parameters, control characters, dot segments in whatever spelling.
 */
function readPath(raw: string): { exact: string[]; folded: string[] } | undefined {
  const exact: string[] = [];
  for (const segment of segmentsOf(raw)) {
    const text = decodedText(segment);
    if (text === undefined || isUnclear(text.normalize('NFKC'))) return undefined;
    exact.push(text);
  }
  return { exact, folded: exact.map(folded) };
}

function isUnclear(segment: string): boolean {
  return segment === '' || /^\.{1,2}[. ]*$|[/\\%;\p{Cc}]/u.test(segment);
}

/** Servers may ignore case, compatible spellings (Unicode, UAX #15), and dots and spaces at an end. */
function folded(segment: string): string {
  const text = segment.normalize('NFKC').toUpperCase().toLowerCase();
  let end = text.length;
  while (text[end - 1] === '.' || text[end - 1] === ' ') end -= 1;
  return text.slice(0, end);
}

/** Without the empty one that a slash at the end would make. */
function segmentsOf(path: string): string[] {
  const segments = path.split('/').slice(1);
  if (segments.at(-1) === '') segments.pop();
  return segments;
}

function splitQuery(target: string): string[] {
  const at = target.indexOf('?');
  return at === -1 ? [target] : [target.slice(0, at), target.slice(at + 1)];
}
