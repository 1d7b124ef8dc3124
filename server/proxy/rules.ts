/**
 * Which calls a key, a ticket and an integration permit. Pure.
 *
 * Rules match the method and the path that the provider gets, decoded once and relative to the API's base address: a rule
 * names the path that a caller writes after `/proxy`. If there are rules, a path that two servers could read differently is
 * denied: ambiguous paths are never allowed.
 */
import { METHODS } from 'node:http';
import { AppError } from '../errors.ts';
import { holdsScope, type ProxyCaller, type TicketRights } from '../http/auth/caller.ts';
import { type ProxyRule, proxyRuleText } from '../http/auth/proxy-rule.ts';
import { decodedPair, decodedText, pairsOf, plainName } from '../http/query.ts';
import type { Integration } from '../integrations/store.ts';

/** The rules of one party to a call. All parties must permit it. */
export type RuleList = {
  readonly of: 'key' | 'integration' | 'ticket';
  readonly rules: readonly ProxyRule[];
  /** Even without rules, method overrides are denied. */
  readonly bindsMethod?: true;
};

export type JudgedCall = {
  readonly method: string;
  /** Path and query for the provider. */
  readonly target: string;
  /** The path of the API's base address, without a trailing slash; absent: none. */
  readonly basePath?: string | undefined;
  /** Whether callers may repeat the base path, so that a deny rule may begin with it, too. */
  readonly cutsBasePath?: boolean;
  /** Whether the caller chose an origin other than the API's. */
  readonly isElsewhere?: boolean;
  /** The path of the base address that the caller chose instead, without a trailing slash. */
  readonly overridePath?: string | undefined;
  /** As the provider gets them, names and values in turn. */
  readonly headers: readonly string[];
  /** Method overrides of the API, in addition to the usual ones. */
  readonly overrides?: Overrides | undefined;
};

/** Throws `proxy_rule_denied` (403), naming the rule, unless every list permits the call. */
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

/** Whether `requirePermission` does not throw. */
export function isPermitted(lists: readonly RuleList[], call: JudgedCall): boolean {
  return lists.every((list) => refusalBy(list, call) === undefined);
}

/** The rule lists for a call of this caller; empty if there are none. */
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

/** The list of a key without `proxy:write`, and of its tickets. */
const readOnly: RuleList = { of: 'key', rules: [], bindsMethod: true };

type Refusal = { reason: string; rule?: string };

function refusalBy(
  { rules: list, bindsMethod }: RuleList,
  {
    method,
    target,
    basePath = '',
    cutsBasePath = false,
    isElsewhere = false,
    overridePath = basePath,
    headers,
    overrides,
  }: JudgedCall,
): Refusal | undefined {
  if (list.length === 0 && bindsMethod !== true) return undefined;
  const [rawPath = '', query = ''] = splitQuery(target);
  const override = overrideIn(headers, { query, also: overrides });
  if (override !== undefined) return { reason: `"${override}" could change its method or path` };
  if (list.length === 0) return undefined;
  const path = decodedPath(rawPath);
  const base = decodedPath(basePath);
  const chosen = decodedPath(overridePath);
  if (path === undefined || base === undefined || chosen === undefined)
    return { reason: 'its path can be read in more than one way' };
  const exact = after(base.exact, path.exact) ?? (isElsewhere ? path.exact : undefined);
  if (exact === undefined) return { reason: "it leaves the path of the API's base address" };
  const rules = compiledOf(list);
  const ofMethod = rules.filter(({ methods }) => includesMethod(methods, method));
  // At an address that the caller chose, the start of the API's path is not known: deny rules apply from each possible start.
  const readings = [
    after(base.folded, path.folded),
    after(chosen.folded, path.folded),
    isElsewhere || cutsBasePath ? path.folded : undefined,
  ];
  const denying = ofMethod.find(
    ({ effect, pattern }) =>
      effect === 'deny' && readings.some((reading) => reading !== undefined && matches(pattern, reading)),
  );
  if (denying !== undefined) return { reason: `"${denying.text}"`, rule: denying.text };
  if (rules.every(({ effect }) => effect === 'deny')) return undefined;
  const isAllowed = ofMethod.some(({ effect, pattern }) => effect === 'allow' && matches(pattern, exact));
  return isAllowed ? undefined : { reason: 'no rule allows its method and path' };
}

/** The segments of a path after its first ones; undefined if it does not start with them. */
function after(first: readonly string[], path: readonly string[]): readonly string[] | undefined {
  return first.every((segment, at) => segment === path[at]) ? path.slice(first.length) : undefined;
}

type Compiled = {
  readonly effect: ProxyRule['effect'];
  readonly methods: ReadonlySet<string> | undefined;
  /** The path's segments; those of a deny rule are folded. */
  readonly pattern: readonly string[];
  readonly text: string;
};

const compiled = new WeakMap<readonly ProxyRule[], readonly Compiled[]>();

/** Keys and integrations are read at most once a second, and each read makes a new list. */
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

/** GET includes HEAD (RFC 9110 §9.3.2). */
function includesMethod(methods: ReadonlySet<string> | undefined, method: string): boolean {
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
 * The segments of a path, exact for allow rules and folded for deny rules. Undefined if servers may read the path
 * differently: invalid escapes, escapes of a slash, a backslash or another escape, empty segments, path parameters, control
 * characters, dot segments in any spelling.
 */
function decodedPath(raw: string): { exact: string[]; folded: string[] } | undefined {
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

/** Servers may ignore case, compatible spellings (Unicode, UAX #15), and dots and spaces at the end. */
function folded(segment: string): string {
  const text = segment.normalize('NFKC').toUpperCase().toLowerCase();
  let end = text.length;
  while (text[end - 1] === '.' || text[end - 1] === ' ') end -= 1;
  return text.slice(0, end);
}

/** A trailing slash adds no segment. */
function segmentsOf(path: string): string[] {
  const segments = path.split('/').slice(1);
  if (segments.at(-1) === '') segments.pop();
  return segments;
}

function splitQuery(target: string): string[] {
  const at = target.indexOf('?');
  return at === -1 ? [target] : [target.slice(0, at), target.slice(at + 1)];
}

/** Method overrides of one API, in addition to the usual ones: header names and query parameters, in any case. */
export type Overrides = { readonly headers: readonly string[]; readonly query: readonly string[] };

/** Of Rails, Laravel, Symfony, Express, ASP.NET, OData, IIS and proxies. The list cannot be complete. */
const usualHeaders = [
  'http-method', 'http-method-override', 'method-override', 'x-http-method', 'x-http-method-override', 'x-method',
  'x-method-override', 'x-original-method', 'x-override-method', 'x-override-uri', 'x-override-url', 'x-original-uri',
  'x-original-url', 'x-rewrite-uri', 'x-rewrite-url',
]; // biome-ignore format: a list reads better in lines
/** Google's APIs accept the pair with a `$` from browsers that avoid a preflight (Closure, goog.net.rpc.HttpCors). */
const usualParameters = [
  ...usualHeaders, '_method', '$method', '_httpmethod', '$httpmethod', '$httpheaders', '_http_method', '_method_override',
]; // biome-ignore format: a list reads better in lines
/** Parameters with another meaning in many APIs: they count only if their value is a method. */
const ambiguousParameters = ['method', 'http_method', 'httpmethod', 'verb', 'http_verb'];

const overrideHeaders = new Set(usualHeaders.map(plainName));
const overrideParameters = new Set(usualParameters.map(plainName));
const ambiguous = new Set(ambiguousParameters.map(plainName));
const methodNames = new Set(METHODS.map((method) => method.toLowerCase()));

/** The first header (names and values in turn) or parameter that could change the call's method or path. */
export function overrideIn(
  rawHeaders: readonly string[],
  { query, also }: { query: string; also: Overrides | undefined },
): string | undefined {
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = plainName(rawHeaders[at]!);
    if (overrideHeaders.has(name) || includesName(also?.headers, name)) return rawHeaders[at]!.toLowerCase();
  }
  if (query === '') return undefined;
  for (const pair of pairsOf(query)) {
    const [name = '', value = ''] = pair.split('=', 2).map((part) => decodedPair(part).trim());
    const plain = plainName(name);
    const isOverride =
      overrideParameters.has(plain) ||
      includesName(also?.query, plain) ||
      (ambiguous.has(plain) && methodNames.has(value.toLowerCase()));
    if (isOverride) return name.toLowerCase();
  }
  return undefined;
}

function includesName(names: readonly string[] | undefined, plain: string): boolean {
  return names?.some((name) => plainName(name) === plain) === true;
}

type TicketedCall = {
  readonly integrationKey: string;
  readonly connectionId: string;
  readonly override: string | undefined;
};

/** Throws `proxy_rule_denied` (403) if the call is for another connection or has a Base-Url-Override. */
export function requireTicketed(ticket: TicketRights, call: TicketedCall): void {
  if (call.integrationKey !== ticket.integrationKey || call.connectionId !== ticket.connectionId)
    throw ticketDenied('it is for another connection');
  // The ticket's paths are relative to the provider's address.
  if (call.override) throw ticketDenied('it takes no Base-Url-Override');
}

/** Throws `proxy_rule_denied` (403) if the connection was deleted and created again under the same ID. */
export function requireSameConnection(
  ticket: TicketRights,
  connection: { id: number; createdAt: Date },
): void {
  if (connection.id !== ticket.connectionRow || connection.createdAt.getTime() !== ticket.connectionMadeAt)
    throw ticketDenied('its connection was deleted');
}

function ticketDenied(reason: string): AppError {
  return new AppError('proxy_rule_denied', `The ticket refuses this call: ${reason}.`, {
    payload: { of: 'ticket' },
  });
}
