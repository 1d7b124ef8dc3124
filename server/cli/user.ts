import { UsageError } from '../../sdk/cli/arguments.ts';
import { writeCommandAudit } from '../activity/audit.ts';
import { type Config, loadConfigWithoutKeys } from '../config/config.ts';
import type { Tx } from '../db/pool.ts';
import { emailAddress } from '../email-address.ts';
import type { Role } from '../http/auth/caller.ts';
import { createInvitation } from '../users/invitations.ts';
import { invitationLink, makeReset } from '../users/links.ts';
import { environmentIdsOf, type Grant } from '../users/members.ts';
import { userToWire } from '../users/routes.ts';
import { listUsers, removeSecondFactor, type User } from '../users/users.ts';
import { withDatabase } from './database.ts';
import { type JsonOption, oneLine, printJson } from './terminal.ts';

/** For an owner who cannot sign in, and for the operator; also while the service runs. */
function loadUserConfig(): Config {
  const config = loadConfigWithoutKeys();
  if (config.signIn.isOff) throw new Error('TRELLIS_SIGN_IN is off: there are no users.');
  return config;
}

/** `trellis user list`: a line for each user, tabs between the columns. */
export async function listUsersCommand({ json }: JsonOption): Promise<number> {
  const users = await withDatabase(loadUserConfig(), listUsers);
  if (json) {
    printJson(users.map(userToWire));
    return 0;
  }
  console.log(['address', 'name', 'role', 'environments', 'second factor', 'last sign-in'].join('\t'));
  for (const user of users) {
    const places = user.places.map(({ environment, role }) => `${environment}:${role}`).join(',');
    const second = user.hasTwoFactor ? 'yes' : 'no';
    const last = user.lastSignedInAt?.toISOString() ?? '-';
    console.log([user.email, oneLine(user.name), user.role ?? '-', places || '-', second, last].join('\t'));
  }
  return 0;
}

type InviteOptions = { role: Role; environment?: string[] | undefined; email?: string | undefined };

/** `trellis user invite`: prints a link that makes one user, valid for seven days. */
export async function inviteCommand({
  role,
  environment: environments = [],
  email,
}: InviteOptions): Promise<number> {
  const { baseUrl } = loadUserConfig();
  if ((role === 'owner') !== (environments.length === 0))
    throw new UsageError(
      '--environment is required for the roles developer and viewer, and not allowed for owner.',
    );
  if (email !== undefined && !emailAddress.safeParse(email).success)
    throw new UsageError(`--email "${email}" is not a valid e-mail address.`);
  const at = new Date();
  const link = await withDatabase(loadConfigWithoutKeys(), (db) =>
    db.transaction(async (tx) => {
      const grant: Grant =
        role === 'owner' ? { role } : { role, environmentIds: await environmentIdsOf(tx, environments) };
      const made = await createInvitation(tx, { email, grant, by: undefined, at });
      const details = { role, environments: environments.join(',') };
      await writeCommandAudit(tx, { action: 'invitation.created', target: String(made.id), details });
      return invitationLink(baseUrl, made.token);
    }),
  );
  console.log(link);
  return 0;
}

/**
 * `trellis user reset-link`: prints a link that sets a new password once and within an hour, and ends the sessions of the
 * user.
 */
export async function resetLinkCommand(email: string): Promise<number> {
  const config = loadUserConfig();
  const link = await withDatabase(config, (db) =>
    db.transaction(async (tx) => {
      const { id } = await userOf(tx, email);
      await writeCommandAudit(tx, { action: 'user.password_reset_made', target: id });
      const made = { userId: id, by: undefined, baseUrl: config.baseUrl, at: new Date() };
      return (await makeReset(tx, made)).link;
    }),
  );
  console.log(link);
  return 0;
}

/** `trellis user remove-second-factor`: for a user whose device and backup codes are lost. Ends the user's sessions. */
export async function removeSecondFactorCommand(email: string): Promise<number> {
  await withDatabase(loadUserConfig(), (db) =>
    db.transaction(async (tx) => {
      const { id } = await userOf(tx, email);
      if (!(await removeSecondFactor(tx, id))) throw new Error(`${email} has no second factor.`);
      await writeCommandAudit(tx, { action: 'user.second_factor_removed', target: id });
    }),
  );
  console.log(`${email} can sign in with only the password; running nodes apply this within one second`);
  return 0;
}

async function userOf(tx: Tx, email: string): Promise<User> {
  const user = (await listUsers(tx)).find((one) => one.email === email.toLowerCase());
  if (user === undefined) throw new Error(`There is no user "${email}"; "trellis user list" lists them.`);
  return user;
}
