import { parseArgs } from 'node:util';
import { writeCommandAudit } from '../activity/audit.ts';
import { type Config, loadConfigWithoutKeys } from '../config/config.ts';
import type { Db, Tx } from '../db/pool.ts';
import { emailAddress } from '../email-address.ts';
import { isRole, roles } from '../http/auth/caller.ts';
import { createInvitation } from '../users/invitations.ts';
import { invitationLink, makeReset } from '../users/links.ts';
import { environmentIdsOf, type Grant } from '../users/members.ts';
import { listUsers, removeSecondFactor, type User } from '../users/users.ts';
import { withDatabase } from './database.ts';
import { oneLine, text } from './terminal.ts';

const usage =
  'The commands are: user list, user invite --role ROLE [--environment NAME]... [--email ADDRESS], user reset-link ADDRESS, ' +
  'user remove-second-factor ADDRESS.';

/** `trellis user ...`: for an owner who cannot sign in, and for the operator; also while the service runs. */
export async function userCommand([command, ...args]: string[]): Promise<number> {
  const config = loadConfigWithoutKeys();
  if (config.signIn.isOff) throw new Error('TRELLIS_SIGN_IN is off: there are no users.');
  if (command === 'list' && args.length === 0) return withDatabase(config, listCommand);
  if (command === 'invite') return inviteCommand(config, args);
  const [email = ''] = args;
  if (args.length === 1 && command === 'reset-link') return resetCommand(config, email);
  if (args.length === 1 && command === 'remove-second-factor') return secondFactorCommand(config, email);
  throw new Error(usage);
}

/** A line for each user, tabs between the columns. */
async function listCommand(db: Db): Promise<number> {
  console.log(['address', 'name', 'role', 'environments', 'second factor', 'last sign-in'].join('\t'));
  for (const user of await listUsers(db)) {
    const places = user.places.map(({ environment, role }) => `${environment}:${role}`).join(',');
    const second = user.hasTwoFactor ? 'yes' : 'no';
    const last = user.lastSignedInAt?.toISOString() ?? '-';
    console.log([user.email, oneLine(user.name), user.role ?? '-', places || '-', second, last].join('\t'));
  }
  return 0;
}

/** Prints a link that makes one user, valid for seven days. */
async function inviteCommand({ baseUrl }: Config, args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      role: { ...text, default: '' },
      environment: { ...text, multiple: true, default: [] },
      email: text,
    },
  });
  const { role, environment: environments, email } = values;
  if (!isRole(role)) throw new Error(`--role must be one of ${roles.join(', ')}.`);
  if ((role === 'owner') !== (environments.length === 0))
    throw new Error(
      '--environment is required for the roles developer and viewer, and not allowed for owner.',
    );
  if (email !== undefined && !emailAddress.safeParse(email).success)
    throw new Error(`--email "${email}" is not a valid e-mail address.`);
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

/** Prints a link that sets a new password once and within an hour, and ends the sessions of the user. */
async function resetCommand(config: Config, email: string): Promise<number> {
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

/** For a user whose device and backup codes are lost. Ends the user's sessions. */
async function secondFactorCommand(config: Config, email: string): Promise<number> {
  await withDatabase(config, (db) =>
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
