import { z } from 'zod';

/**
 * What a key or an integration lets through the proxy: which methods on which paths. How a call is judged stands in
 * `proxy/rules.ts`.
 */
export type ProxyRule = z.output<typeof proxyRule>;

/**
 * A path, decoded, of segments. `*` stands for any part of a segment, once in each; `**` as the last segment
 * for any number of further ones, none included. A slash at the end says nothing.
 */
const pathPattern = z
  .string()
  .max(1024)
  .regex(
    /^\/[^\p{Cc}%\\?#;]*$/u,
    'must begin with / and hold no % \\ ? # ; or control character: write it decoded',
  )
  .refine((path) => !/\/(\/|\.{1,2}(\/|$))/.test(path), 'must hold no empty segment, . or ..')
  .refine(
    (path) => !/\*[^/]*\*/.test(path.replace(/\/\*\*$/, '')),
    'may hold * once in a segment, and ** as the last',
  );

export const proxyRule = z.strictObject({
  effect: z.enum(['allow', 'deny']),
  /** Absent: every method. GET stands for HEAD too. */
  methods: z
    .array(z.string().regex(/^[A-Z][A-Z-]*$/, 'must be a method in capitals, such as GET'))
    .min(1)
    .max(50)
    .optional(),
  path: pathPattern,
});

/** A rule that denies wins; where one allows, what none allows is refused. Without rules every call passes. */
export const proxyRules = z.array(proxyRule).max(100);

/**
 * A rule out of `GET,HEAD /v4/spreadsheets/**` or a path alone, as the command line has it. Undefined where it is none.
 */
export function readProxyRule(effect: ProxyRule['effect'], text: string): ProxyRule | undefined {
  const [, methods, path] = /^(?:([A-Za-z,-]+) +)?(\/.*)$/.exec(text.trim()) ?? [];
  const read = proxyRule.safeParse({
    effect,
    ...(methods !== undefined && { methods: methods.toUpperCase().split(',') }),
    path,
  });
  return read.success ? read.data : undefined;
}

/** As `readProxyRule` takes it, with what it does in front. */
export function proxyRuleText({ effect, methods, path }: ProxyRule): string {
  return [effect, ...(methods ? [methods.join(',')] : []), path].join(' ');
}
