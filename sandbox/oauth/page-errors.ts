/** Error pages of the authorization, with Google's texts and codes. None of them redirects to the client. */

import type { Account } from '../accounts.ts';
import type { Project } from '../clients.ts';
import type { PageError } from './request.ts';

export const adminPolicy: PageError = {
  status: 400,
  code: 'admin_policy_enforced',
  message: 'Access to your account data is restricted by policies within your organization.',
};

export const orgInternal: PageError = {
  status: 403,
  code: 'org_internal',
  message: 'This client is restricted to users within its organization.',
};

export const untestedUser: PageError = {
  status: 403,
  code: 'access_denied',
  message:
    'The developer hasn’t given you access to this app. It’s currently being tested and it hasn’t been verified by Google.',
};

const accountRestricted: PageError = {
  status: 403,
  code: 'access_denied',
  message: 'Account restricted',
};

export const redirectMismatch: PageError = {
  status: 400,
  code: 'redirect_uri_mismatch',
  message: 'The redirect URI of this request is not registered with the client.',
};

export const deletedClient: PageError = {
  status: 401,
  code: 'deleted_client',
  message: 'The OAuth client was deleted.',
};

export const rateLimited: PageError = {
  status: 403,
  code: 'rate_limit_exceeded',
  message: 'This app has reached its sign-in rate limit for now.',
};

/**
 * The error page for an account that may not consent: its admin forbids it, the project is for one organization, or the
 * project is in testing and the account is not a test user.
 */
export function refusalOf(account: Account, project: Project): PageError | undefined {
  if (account.standing === 'admin_policy') return adminPolicy;
  if (account.standing !== 'active') return accountRestricted;
  if (project.audience === 'internal') {
    return account.hostedDomain === project.domain ? undefined : orgInternal;
  }
  if (project.publishing === 'testing' && !project.testUsers.includes(account.email)) return untestedUser;
  return undefined;
}
