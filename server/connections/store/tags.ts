import { z } from 'zod';
import { nameSchemas } from '../../http/openapi/schema-names.ts';
import { text } from '../../http/text.ts';
import type { ConnectionHead, EndUser } from './store.ts';

const tags = z
  .record(
    z
      .string()
      .regex(/^[a-zA-Z][a-zA-Z0-9_\-./]{0,63}$/, 'must begin with a letter, then letters, digits or _ - . /'),
    text({ min: 1, max: 255 }),
  )
  .superRefine((tags, context) => {
    const names = Object.keys(tags).map((name) => name.toLowerCase());
    if (new Set(names).size < names.length) {
      context.addIssue({ code: 'custom', message: 'Two tags are the same in lower case.' });
    }
    for (const [name, value] of Object.entries(tags)) {
      if (name.toLowerCase() !== 'end_user_email' || z.email().safeParse(value).success) continue;
      context.addIssue({ code: 'custom', message: 'must be an e-mail address', path: [name] });
    }
  });

/**
 * Tags of a connection in a request: at most 10. Names are lower-cased, and two names that become equal are an error.
 * `end_user_email` must be an e-mail address.
 */
export const tagsInput = tags
  .superRefine((tags, context) => {
    if (Object.keys(tags).length > 10)
      context.addIssue({ code: 'custom', message: 'There are more than 10 tags.' });
  })
  .transform(lowered);

/** Stored tags of a connection: the tags of its end user (`tagsOf`) come in addition to the 10. */
export const storedTags = tags.transform(lowered);

function lowered(tags: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(tags).map(([name, value]) => [name.toLowerCase(), value]));
}

const name = text({ max: 255 }).nullish();
export const endUserInput = z.strictObject({
  id: text({ min: 1, max: 255 }),
  email: z.email().nullish(),
  display_name: name,
  tags: z.record(text({ max: 255 }), text({ max: 8192 })).nullish(),
});
export const organizationInput = z.strictObject({ id: text({ min: 1, max: 255 }), display_name: name });
nameSchemas({ EndUser: endUserInput, Organization: organizationInput, Tags: tagsInput });
nameSchemas({ Tags: storedTags });

/** The tags of a connection that stay when `next` becomes its end user: the previous end user's tags are removed. */
export function tagsKept(
  { tags, endUser }: Pick<ConnectionHead, 'tags' | 'endUser'>,
  next: EndUser | undefined,
): Record<string, string> {
  if (next === undefined) return tags;
  const ofPrevious = tagsOf({ endUser });
  return Object.fromEntries(Object.entries(tags).filter(([name, value]) => ofPrevious[name] !== value));
}

/** The tags that follow from an end user; explicit tags win. */
export function tagsOf(given: {
  endUser?: EndUser | undefined;
  tags?: Record<string, string> | undefined;
}): Record<string, string> {
  const { endUser, tags = {} } = given;
  const { organization } = endUser ?? {};
  const implied = {
    end_user_id: endUser?.id,
    end_user_email: endUser?.email,
    end_user_display_name: endUser?.display_name,
    organization_id: organization?.id,
    organization_display_name: organization?.display_name,
  };
  const known = Object.entries(implied).filter((entry): entry is [string, string] => Boolean(entry[1]));
  return { ...Object.fromEntries(known), ...tags };
}
