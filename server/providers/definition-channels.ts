import { z } from 'zod';

const header = z.string().regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/, 'is no header name');
const path = z.string().regex(/^\/[A-Za-z0-9_./{}?=&-]*$/, 'is no path');
const lifeS = z.int().positive();

/**
 * Push channels: what a provider tells of changes to an address that it was given, for a while. They are asked for and
 * stopped as Google's APIs want it (https://developers.google.com/workspace/drive/api/guides/push): JSON with `id`,
 * `token`, `address` and `expiration`, answered with `resourceId` and `expiration`.
 */
export const channelsSchema = z.strictObject({
  base_url: z.url({ protocol: /^https?$/ }),
  /** A grant needs one of them; none: any grant will do. */
  scopes: z.array(z.string()).default([]),
  /** Fields of a connection's metadata that name what is to be watched, one ID or a list of them. */
  metadata: z.array(z.string()).default([]),
  /** Where one thing is watched, `{target}` its ID, and how long that lasts at most. */
  target: z.strictObject({ path: path.includes('{target}'), life_s: lifeS }),
  /** Where everything of the account is, from a page token on that is asked for first: `{page}`. */
  account: z
    .strictObject({
      path: path.includes('{page}'),
      page: z.strictObject({ path, field: z.string().min(1) }),
      life_s: lifeS,
    })
    .optional(),
  stop: z.strictObject({ path }),
  /** What a message says of itself. */
  headers: z.strictObject({ id: header, token: header, resource: header, type: header }),
  /** The type of the message that only opens a channel. */
  opening: z.string(),
  /** What a sync may subscribe to for all types. */
  kind: z.string(),
  /** Reasons of an error answer that asking again soon does not change. */
  lasting: z.array(z.string()).default([]),
});

export type ChannelRules = z.output<typeof channelsSchema>;
