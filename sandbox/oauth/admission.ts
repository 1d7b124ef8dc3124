import type { Account } from '../accounts.ts';
import type { Project } from '../clients.ts';
import { ACCOUNT_RESTRICTED, ADMIN_POLICY, ORG_INTERNAL, UNTESTED_USER } from './page-errors.ts';
import type { PageError } from './request.ts';

/**
 * The error page on which this account's way to the project ends, if it may not consent: its admin says no, the
 * project is for one organization, or it is in testing and the account is not among its test users.
 */
export function refusalOf(account: Account, project: Project): PageError | undefined {
  if (account.standing === 'admin_policy') return ADMIN_POLICY;
  if (account.standing !== 'active') return ACCOUNT_RESTRICTED;
  if (project.audience === 'internal') {
    return account.hostedDomain === project.domain ? undefined : ORG_INTERNAL;
  }
  if (project.publishing === 'testing' && !project.testUsers.includes(account.email)) return UNTESTED_USER;
  return undefined;
}
