import { z } from 'zod';

/** A JOSE header parameter, a claim, or a field of a body. */
const memberName = z
  .string()
  .regex(/^[A-Za-z][A-Za-z0-9_]*$/, 'is not a valid name of a header parameter, claim or field');
const members = z.record(memberName, z.string().min(1));
/** The library and the clock set these (RFC 7519 §4.1, RFC 7515 §4.1). */
const ownMembers: ReadonlySet<string> = new Set(['alg', 'exp', 'iat', 'nbf', 'crit', 'b64']);
const settable = members.refine((given) => Object.keys(given).every((name) => !ownMembers.has(name)), {
  message: 'sets a member that follows from the algorithm or the clock',
});

/** The signed assertion (RFC 7519) of a provider with the auth mode `JWT`; `auth-modes/jwt.ts` signs and sends it. */
export const assertionSchema = z.strictObject({
  /**
   * `grant`: the token endpoint takes it as a grant (RFC 7523 §2.1). `bearer`: the token endpoint takes it as the bearer
   * token of a POST. `direct`: it is the token for the API.
   */
  use: z.enum(['grant', 'bearer', 'direct']),
  algorithm: z.enum(['RS256', 'RS512', 'PS256', 'ES256', 'ES384', 'HS256', 'HS512']),
  /** Of HS256 and HS512: the form of the key. `id:hex` is the key ID, a colon and the key in hex. */
  secret: z.enum(['text', 'hex', 'id:hex']).default('text'),
  /** Members whose placeholders have no value are left out. */
  header: settable.default({}),
  claims: settable.default({}),
  life_s: z.int().positive().max(86_400),
  /** How far `iat` is in the past, for a provider whose clock may be behind. */
  issued_s_ago: z.int().min(0).max(300).default(0),
  /** The JSON body of a `bearer` request: `a,b` as a list, or `a:x,b:y` as an object. Empty fields are left out. */
  body: z
    .record(memberName, z.strictObject({ value: z.string().min(1), as: z.enum(['list', 'object']) }))
    .default({}),
});

type Assertion = z.output<typeof assertionSchema>;

/** The templates of an assertion, with their paths in it. */
export function assertionTexts({ header, claims, body }: Assertion): [path: string[], template: string][] {
  const of = (section: string, texts: Readonly<Record<string, string>>) =>
    Object.entries(texts).map(([name, text]): [string[], string] => [[section, name], text]);
  const fields = Object.entries(body).map(([name, { value }]): [string[], string] => [
    ['body', name, 'value'],
    value,
  ]);
  return [...of('header', header), ...of('claims', claims), ...fields];
}
