import { z } from 'zod';
import { nameSchemas } from '../openapi/schema-names.ts';

/** A rule of a key or an integration for calls through the proxy, by method and path. `proxy/rules.ts` applies the rules. */
export type ProxyRule = z.output<typeof proxyRule>;

/**
 * A decoded path. `*` matches any part of a segment, once in each segment; `**` as the last segment matches any number of
 * segments, including none. A trailing slash has no meaning.
 */
const pathPattern = z
  .string()
  .max(1024)
  .regex(
    /^\/[^\p{Cc}%\\?#;]*$/u,
    'must begin with / and must not contain % \\ ? # ; or control characters: write it decoded',
  )
  .refine((path) => !/\/(\/|\.{1,2}(\/|$))/.test(path), 'must not contain an empty segment, . or ..')
  .refine(
    (path) => !/\*[^/]*\*/.test(path.replace(/\/\*\*$/, '')),
    'may contain * once in a segment, and ** as the last segment',
  );

export const proxyRule = z.strictObject({
  effect: z.enum(['allow', 'deny']),
  /** Absent: every method. GET includes HEAD. */
  methods: z
    .array(z.string().regex(/^[A-Z][A-Z-]*$/, 'must be a method in capitals, such as GET'))
    .min(1)
    .max(50)
    .optional(),
  path: pathPattern,
});
nameSchemas({ ProxyRule: proxyRule });

/** Deny rules win. If there are allow rules, a call must match one of them. Without rules every call is permitted. */
export const proxyRules = z.array(proxyRule).max(100);

/** Parses the form of the command line: `GET,HEAD /v4/spreadsheets/**`, or a path alone. Undefined if it is invalid. */
export function readProxyRule(effect: ProxyRule['effect'], text: string): ProxyRule | undefined {
  const [, methods, path] = /^(?:([A-Za-z,-]+) +)?(\/.*)$/.exec(text.trim()) ?? [];
  const read = proxyRule.safeParse({
    effect,
    ...(methods !== undefined && { methods: methods.toUpperCase().split(',') }),
    path,
  });
  return read.success ? read.data : undefined;
}

/** The rule in the form of `readProxyRule`, after its effect. */
export function proxyRuleText({ effect, methods, path }: ProxyRule): string {
  return [effect, ...(methods ? [methods.join(',')] : []), path].join(' ');
}
