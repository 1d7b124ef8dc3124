import { z } from 'zod';
import { writeUserAudit } from '../activity/audit.ts';
import type { Config } from '../config/config.ts';
import type { Db } from '../db/pool.ts';
import { AppError, fieldError } from '../errors.ts';
import { type Person, roles, scopesOfRole } from '../http/auth/caller.ts';
import { nameSchemas, success } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import { text } from '../http/text.ts';
import { endInvitationsBy } from './invitations.ts';
import { endResetsBy, makeReset } from './links.ts';
import { type Mailer, resetMail } from './mail.ts';
import {
  environmentIdsOf,
  type Grant,
  hasOwner,
  lockOwners,
  putGrant,
  type Rights,
  requireOtherOwner,
} from './members.ts';
import type { SignIn } from './sign-in.ts';
import { deleteUser, findUser, listUsers, personName, renameUser, type User } from './users.ts';

export type UserDeps = {
  config: Pick<Config, 'baseUrl' | 'brand' | 'signIn'>;
  db: Db;
  signIn: SignIn;
  mailer: Mailer | undefined;
  rights: Rights;
  now: () => Date;
  /** Called when rights or sessions have changed, so that caches drop them. */
  afterChange: () => void;
};

const ofPeople = { access: { by: 'person' } } as const;
const ofOwners = { access: { by: 'person', only: 'owner' } } as const;
const params = z.object({ id: z.string().min(1).max(64) });
const role = z.enum(roles);
const place = z.object({ environment: z.string(), role });
const userWire = z.object({
  id: z.string(),
  name: z.string(),
  email: z.string(),
  role: role.nullable(),
  environments: z.array(place),
  two_factor: z.boolean(),
  created_at: z.string(),
  last_signed_in_at: z.string().nullable(),
});
const signedInWire = z.object({
  id: z.string(),
  name: z.string(),
  email: z.string(),
  role: role.nullable(),
  two_factor: z.boolean(),
  environments: z.array(z.object({ name: z.string(), role, scopes: z.array(z.string()) })),
});
nameSchemas({ SignedInUser: signedInWire, User: userWire });
/** A role, and its environments, except for owners. */
export const grantInput = {
  role,
  environments: z
    .array(text({ min: 1, max: 64 }))
    .max(1_000)
    .optional(),
};

/** The signed-in user, and for owners all users. */
export function userRoutes(app: App, { config, db, mailer, rights, now, afterChange }: UserDeps): void {
  const { baseUrl, brand } = config;
  const { isOff, oidc } = config.signIn;

  app.get(
    '/users/sign-in',
    {
      config: { access: { by: 'anyone' } },
      schema: {
        operationId: 'getSignIn',
        summary: 'Get the sign-in methods',
        description: 'Whether users must sign in, and how.',
        response: {
          200: z.object({
            data: z.object({
              required: z.boolean(),
              needs_owner: z.boolean(),
              oidc: z.object({ name: z.string() }).nullable(),
              mail: z.boolean(),
              brand: z.string(),
            }),
          }),
        },
      },
    },
    async () => ({
      data: {
        required: !isOff,
        needs_owner: !isOff && !(await hasOwner(db)),
        oidc: oidc === undefined ? null : { name: oidc.name },
        mail: mailer !== undefined,
        brand: brand.word,
      },
    }),
  );

  app.get(
    '/users/me',
    {
      config: ofPeople,
      schema: {
        operationId: 'getMe',
        summary: 'Get the signed-in user',
        description: 'The user of the cookie, with a role and its scopes for each environment.',
        response: { 200: z.object({ data: signedInWire }) },
      },
    },
    async ({ person }) => ({ data: meToWire(person) }),
  );

  app.patch(
    '/users/me',
    {
      config: ofPeople,
      schema: {
        operationId: 'renameMe',
        summary: 'Change your own name',
        description: 'The name that other users see in the list of users and in invitations.',
        body: z.strictObject({ name: personName }),
        response: { 200: z.object({ data: userWire }) },
      },
    },
    async ({ body: { name }, person }) => {
      const { userId } = person;
      const changed = await db.transaction(async (tx) => {
        await renameUser(tx, { id: userId, name, at: now() });
        await writeUserAudit(tx, { person, action: 'user.renamed', target: userId });
        return getUser(tx, userId);
      });
      afterChange();
      return { data: userToWire(changed) };
    },
  );

  app.get(
    '/users',
    {
      config: ofOwners,
      schema: {
        operationId: 'listUsers',
        list: { items: 'data', by: 'whole' },
        summary: 'List users',
        description: 'All users who may sign in, with the role and the environments of each user.',
        response: { 200: z.object({ data: z.array(userWire) }) },
      },
    },
    async () => ({ data: (await listUsers(db)).map(userToWire) }),
  );

  app.patch(
    '/users/:id',
    {
      config: ofOwners,
      schema: {
        operationId: 'changeUser',
        summary: 'Change the permissions of a user',
        description:
          'The given role and environments replace the previous ones. All nodes apply the change within a second. If the ' +
          'user is no longer an owner, the invitations and reset links that the user created become invalid.',
        errors: ['not_found', 'last_owner'],
        params,
        example: { body: { role: 'developer', environments: ['dev'] } },
        body: z.strictObject(grantInput),
        response: { 200: z.object({ data: userWire }) },
      },
    },
    async ({ params: { id }, body, person }) => {
      const grant = await grantOf(db, body);
      const changed = await db.transaction(async (tx) => {
        await lockOwners(tx);
        await rights.requireOwner(tx, person);
        await getUser(tx, id);
        if (grant.role !== 'owner') {
          await requireOtherOwner(tx, id);
          await endInvitationsBy(tx, id);
          await endResetsBy(tx, id);
        }
        await putGrant(tx, { userId: id, grant, at: now() });
        const details = { role: grant.role, environments: (body.environments ?? []).join(',') };
        await writeUserAudit(tx, { person, action: 'user.changed', target: id, details });
        return getUser(tx, id);
      });
      afterChange();
      return { data: userToWire(changed) };
    },
  );

  app.delete(
    '/users/:id',
    {
      config: ofOwners,
      schema: {
        operationId: 'removeUser',
        summary: 'Remove a user',
        description:
          "Also removes the user's sessions, and the invitations and reset links that the user created. Keys that the user " +
          'created stay.',
        errors: ['not_found', 'last_owner'],
        params,
        response: { 200: success },
      },
    },
    async ({ params: { id }, person }) => {
      await db.transaction(async (tx) => {
        await lockOwners(tx);
        await rights.requireOwner(tx, person);
        const { email } = await getUser(tx, id);
        await requireOtherOwner(tx, id);
        await deleteUser(tx, id);
        await writeUserAudit(tx, { person, action: 'user.removed', target: id, details: { email } });
      });
      afterChange();
      return { success: true as const };
    },
  );

  app.post(
    '/users/:id/password-reset',
    {
      config: ofOwners,
      schema: {
        operationId: 'makePasswordReset',
        summary: 'Create a link with which a user sets a new password',
        description:
          "Only this response has the link. It is valid for one hour and for one use, which ends the user's sessions. If " +
          'mail is configured, the link is also sent to the user. Not available for users who sign in only through the ' +
          'OpenID provider.',
        errors: ['not_found', 'user_without_password'],
        params,
        response: {
          201: z.object({
            data: z.object({ link: z.string(), expires_at: z.string(), mailed: z.boolean() }),
          }),
        },
      },
    },
    async ({ params: { id }, person }, reply) => {
      const { email, link, expiresAt } = await db.transaction(async (tx) => {
        await rights.requireOwner(tx, person);
        const user = await getUser(tx, id);
        if (!user.hasPassword) throw new AppError('user_without_password');
        await writeUserAudit(tx, { person, action: 'user.password_reset_made', target: user.id });
        const made = await makeReset(tx, { userId: user.id, by: person.userId, baseUrl, at: now() });
        return { ...user, ...made };
      });
      const mailed = (await mailer?.send(resetMail({ to: email, link, brand: brand.word }))) ?? false;
      reply.code(201);
      return { data: { link, expires_at: expiresAt.toISOString(), mailed } };
    },
  );
}

/** Throws `invalid_body` if owners are given environments, or others none. */
export async function grantOf(
  db: Db,
  { role, environments }: { role: Grant['role']; environments?: string[] | undefined },
): Promise<Grant> {
  if (role === 'owner') {
    if (environments === undefined) return { role };
    throw fieldError(
      'invalid_body',
      ['environments'],
      'is only for developers and viewers: an owner has access to all environments',
    );
  }
  if (environments === undefined || environments.length === 0) {
    throw fieldError('invalid_body', ['environments'], 'must name the environments of the role');
  }
  return { role, environmentIds: await environmentIdsOf(db, environments) };
}

async function getUser(db: Parameters<typeof findUser>[0], id: string): Promise<User> {
  const user = await findUser(db, id);
  if (user === undefined) throw new AppError('not_found', `There is no user "${id}".`);
  return user;
}

function meToWire({ userId, name, email, isOwner, hasTwoFactor, places }: Person) {
  const [first] = places.values();
  return {
    id: userId,
    name,
    email,
    role: isOwner ? ('owner' as const) : (first?.role ?? null),
    two_factor: hasTwoFactor,
    environments: [...places].map(([environment, { role }]) => ({
      name: environment,
      role,
      scopes: [...scopesOfRole(role)],
    })),
  };
}

/** The wire format of a user, also of `trellis user list --json`. */
export function userToWire(user: User): z.input<typeof userWire> {
  return {
    id: user.id,
    name: user.name,
    email: user.email,
    role: user.role ?? null,
    environments: user.places,
    two_factor: user.hasTwoFactor,
    created_at: user.createdAt.toISOString(),
    last_signed_in_at: user.lastSignedInAt?.toISOString() ?? null,
  };
}
