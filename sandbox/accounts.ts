import { createHash } from 'node:crypto';

/**
 * The status of an account: `restricted` ("Account restricted") and `admin_policy` (admin_policy_enforced) are set by its
 * Workspace admin, `disabled` by the provider.
 */
export type Standing = 'active' | 'restricted' | 'admin_policy' | 'disabled';

/** A user account at the provider. */
export interface Account {
  /** 21 digits, like Google's; derived from the address, so that it is the same in every data dir. */
  sub: string;
  email: string;
  name: string;
  /** The Workspace domain; absent for a personal account. */
  hostedDomain?: string;
  standing: Standing;
  /** Session control: tokens with Cloud scopes refresh only this long after their consent, in seconds. */
  sessionSeconds?: number;
}

/** The accounts of a new sandbox, so that a first consent needs no set-up. */
export const exampleAccounts = [
  { email: 'ada@example.com', name: 'Ada Example' },
  { email: 'grace@example.com', name: 'Grace Example' },
];

/** The accounts of the sandbox, in the order in which they were added. */
export class Accounts {
  #bySub = new Map<string, Account>();

  constructor(accounts: Account[]) {
    for (const account of accounts) this.#bySub.set(account.sub, account);
  }

  list(): Account[] {
    return [...this.#bySub.values()];
  }

  /** By e-mail address (any case) or by `sub`. */
  find(emailOrSub: string): Account | undefined {
    return this.#bySub.get(emailOrSub) ?? this.#bySub.get(subOf(emailOrSub));
  }

  /** Adds an account, or updates name and domain of the account with this address. */
  add(wanted: { email: string; name?: string | undefined; hostedDomain?: string | undefined }): Account {
    const known = this.find(wanted.email);
    const account: Account = known ?? {
      sub: subOf(wanted.email),
      email: wanted.email.toLowerCase(),
      name: nameOf(wanted.email),
      standing: 'active',
    };
    if (wanted.name !== undefined) account.name = wanted.name;
    if (wanted.hostedDomain !== undefined) account.hostedDomain = wanted.hostedDomain;
    this.#bySub.set(account.sub, account);
    return account;
  }

  /** Deletes an account. The caller revokes its tokens. */
  remove(account: Account): void {
    this.#bySub.delete(account.sub);
  }
}

/** The account of tokens that a client gets for itself (RFC 6749 §4.4). */
export function ownAccountOf(clientId: string): Account {
  return { sub: clientId, email: clientId, name: clientId, standing: 'active' };
}

/** Whether a text is a possible address of an account. */
export function isEmail(text: string): boolean {
  return text.length <= 254 && /^[^\s@<>"]+@[^\s@<>"]+\.[^\s@<>".]+$/.test(text);
}

function subOf(email: string): string {
  const digest = createHash('sha256').update(email.toLowerCase()).digest('hex');
  return `1${(BigInt(`0x${digest}`) % 10n ** 20n).toString().padStart(20, '0')}`;
}

function nameOf(email: string): string {
  const words = email.slice(0, email.indexOf('@')).split(/[._+-]+/);
  return words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join(' ');
}
