import { z } from 'zod';
import { writeUserAudit } from '../activity/audit.ts';
import { emailAddress } from '../email-address.ts';
import { AppError, fieldError } from '../errors.ts';
import { roles } from '../http/auth/caller.ts';
import { nameSchemas, success } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import {
  acceptInvitation,
  countTry,
  createInvitation,
  deleteInvitation,
  getInvitation,
  type Invitation,
  listInvitations,
} from './invitations.ts';
import { invitationLink } from './links.ts';
import { invitationMail } from './mail.ts';
import { grantInput, grantOf, type UserDeps } from './routes.ts';
import { longestPassword, shortestPassword } from './sign-in-rules.ts';
import { personName } from './users.ts';

const ofOwners = { access: { by: 'person', only: 'owner' } } as const;
const anyone = { access: { by: 'anyone' } } as const;
const token = z.string().regex(/^[A-Za-z0-9_-]{43}$/, 'is not the token of a link');
const invitationWire = z.object({
  id: z.number().int(),
  email: z.string().nullable(),
  role: z.enum(roles),
  environments: z.array(z.string()),
  /** Null: the command line. */
  created_by: z.string().nullable(),
  created_at: z.string(),
  expires_at: z.string(),
});
const newInvitationWire = invitationWire.extend({ link: z.string(), mailed: z.boolean() });
nameSchemas({ Invitation: invitationWire, NewInvitation: newInvitationWire });

/** Invitations: owners create and revoke them, and any user that has the link accepts. */
export function invitationRoutes(app: App, { config, db, signIn, mailer, rights, now }: UserDeps): void {
  app.get(
    '/users/invitations',
    {
      config: ofOwners,
      schema: {
        operationId: 'listInvitations',
        list: { items: 'data', by: 'whole' },
        summary: 'List the invitations that are not accepted yet',
        description: 'Without their links: only the response that creates an invitation has its link.',
        response: { 200: z.object({ data: z.array(invitationWire) }) },
      },
    },
    async () => ({ data: (await listInvitations(db, now())).map(toWire) }),
  );

  app.post(
    '/users/invitations',
    {
      config: ofOwners,
      schema: {
        operationId: 'createInvitation',
        summary: 'Invite a user',
        description:
          'The link is returned only once. It is valid for seven days and for one user. With an `email`, it creates the ' +
          'user with that address, who can also sign in through the OpenID provider; without `email`, the user enters an ' +
          'address. If mail is configured, the link is also sent to that address.',
        errors: ['user_exists', 'not_found'],
        example: { body: { role: 'developer', environments: ['dev'], email: 'ada@customer.example' } },
        body: z.strictObject({ ...grantInput, email: emailAddress.optional() }),
        response: { 201: z.object({ data: newInvitationWire }) },
      },
    },
    async ({ body, person }, reply) => {
      requireSignIn();
      const grant = await grantOf(db, body);
      const at = now();
      const made = await db.transaction(async (tx) => {
        await rights.requireOwner(tx, person);
        const created = await createInvitation(tx, { email: body.email, grant, by: person.userId, at });
        const details = { role: grant.role, environments: (body.environments ?? []).join(',') };
        await writeUserAudit(tx, {
          person,
          action: 'invitation.created',
          target: String(created.id),
          details,
        });
        return created;
      });
      const link = invitationLink(config.baseUrl, made.token);
      const to = body.email?.toLowerCase();
      const mail =
        to === undefined
          ? undefined
          : invitationMail({ to, link, by: person.name, brand: config.brand.word });
      const mailed = (mail && (await mailer?.send(mail))) ?? false;
      reply.code(201);
      return {
        data: {
          id: made.id,
          email: to ?? null,
          role: grant.role,
          environments: body.environments ?? [],
          created_by: person.userId,
          created_at: at.toISOString(),
          expires_at: made.expiresAt.toISOString(),
          link,
          mailed,
        },
      };
    },
  );

  app.delete(
    '/users/invitations/:id',
    {
      config: ofOwners,
      schema: {
        operationId: 'deleteInvitation',
        summary: 'Withdraw an invitation',
        description: 'Its link is rejected from now on.',
        errors: ['not_found'],
        params: z.object({ id: z.coerce.number().int().min(1).max(Number.MAX_SAFE_INTEGER) }),
        response: { 200: success },
      },
    },
    async ({ params: { id }, person }) => {
      await db.transaction(async (tx) => {
        const deleted = await deleteInvitation(tx, id);
        if (deleted === undefined) throw new AppError('not_found', `There is no invitation ${id}.`);
        await writeUserAudit(tx, {
          person,
          action: 'invitation.deleted',
          target: String(id),
          details: { role: deleted.role },
        });
      });
      return { success: true as const };
    },
  );

  app.post(
    '/users/invitation',
    {
      config: anyone,
      schema: {
        operationId: 'getInvitation',
        summary: 'Get the invitation of a link',
        description:
          'The token of the link is in the body, so that no address contains it. The call does not use up the invitation.',
        errors: ['invalid_invitation', 'not_found'],
        body: z.strictObject({ token }),
        response: {
          200: z.object({
            data: z.object({
              kind: z.enum(['setup', 'invitation']),
              email: z.string().nullable(),
              role: z.enum(roles),
              environments: z.array(z.string()),
              expires_at: z.string(),
            }),
          }),
        },
      },
    },
    async ({ body }) => {
      requireSignIn();
      const invitation = await getInvitation(db, { token: body.token, at: now() });
      const { email, role, environments, expires_at } = toWire(invitation);
      const kind = invitation.isSetUp ? ('setup' as const) : ('invitation' as const);
      return { data: { kind, email, role, environments, expires_at } };
    },
  );

  app.post(
    '/users',
    {
      config: anyone,
      schema: {
        operationId: 'acceptInvitation',
        summary: 'Create a user with an invitation link',
        description: `Afterwards the link is invalid. The password has ${shortestPassword} to ${longestPassword} characters.`,
        errors: ['invalid_invitation', 'user_exists', 'not_found'],
        body: z.strictObject({
          token,
          name: personName,
          email: emailAddress,
          password: z.string().min(shortestPassword).max(longestPassword),
        }),
        response: { 201: z.object({ data: z.object({ id: z.string(), email: z.string() }) }) },
      },
    },
    async ({ body }, reply) => {
      requireSignIn();
      const at = now();
      const invitation = await getInvitation(db, { token: body.token, at });
      if (invitation.email !== undefined && invitation.email !== body.email.toLowerCase())
        throw fieldError('invalid_body', ['email'], 'is not the address that was invited');
      await countTry(db, { token: body.token, at });
      // Hashing takes a while, so it is done before the transaction, and only with a valid link.
      const { password } = await (await signIn()).$context;
      const passwordHash = await password.hash(body.password);
      const user = { name: body.name, email: body.email, passwordHash };
      const made = await db.transaction((tx) => acceptInvitation(tx, { token: body.token, user, at }));
      reply.code(201);
      return { data: made };
    },
  );

  function requireSignIn(): void {
    if (config.signIn.isOff) throw new AppError('not_found', 'The sign-in is off: there are no users.');
  }
}

function toWire(invitation: Invitation): z.input<typeof invitationWire> {
  return {
    id: invitation.id,
    email: invitation.email ?? null,
    role: invitation.role,
    environments: invitation.environments,
    created_by: invitation.createdBy ?? null,
    created_at: invitation.createdAt.toISOString(),
    expires_at: invitation.expiresAt.toISOString(),
  };
}
