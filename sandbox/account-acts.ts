import type { Account, Accounts, Standing } from './accounts.ts';
import type { Clients } from './clients.ts';
import type { Grants } from './grants.ts';
import { isSignInScope } from './oauth/scopes.ts';
import type { Receiver, Receivers } from './receivers.ts';
import type { Delivery, EventType, SecurityEvents } from './security-events.ts';
import type { Tokens } from './tokens.ts';

/**
 * What befalls an account at the provider: what ends with it, and which security event it sets off.
 *
 * Each act is on disk before its events are sent, and resolves with what became of them. Receivers hear of an
 * account only through a client whose project it lets see its address or profile.
 */
export class AccountActs {
  #accounts: Accounts;
  #clients: Clients;
  #grants: Grants;
  #tokens: Tokens;
  #receivers: Receivers;
  #events: SecurityEvents;
  #save: () => Promise<void>;

  constructor(parts: {
    accounts: Accounts;
    clients: Clients;
    grants: Grants;
    tokens: Tokens;
    receivers: Receivers;
    securityEvents: SecurityEvents;
    save: () => Promise<void>;
  }) {
    this.#accounts = parts.accounts;
    this.#clients = parts.clients;
    this.#grants = parts.grants;
    this.#tokens = parts.tokens;
    this.#receivers = parts.receivers;
    this.#events = parts.securityEvents;
    this.#save = parts.save;
  }

  /** The account takes back what it granted a project: all tokens of all its clients end. */
  async revoke(account: Account, projectNumber: string): Promise<Delivery[]> {
    const hearers = this.#hearersOf(account).filter(
      ({ clientId }) => this.#clients.find(clientId)?.projectNumber === projectNumber,
    );
    const pair = { projectNumber, sub: account.sub };
    this.#tokens.endAll(pair);
    this.#grants.remove(pair);
    return this.#tell(hearers, { account, type: 'tokens-revoked' });
  }

  /** A new password: tokens that hold a mail scope end, the others go on. */
  async changePassword(account: Account): Promise<{ ended: number; deliveries: Delivery[] }> {
    const hearers = this.#hearersOf(account);
    const ended = this.#tokens.endMail(account.sub);
    return { ended, deliveries: await this.#tell(hearers, { account, type: 'sessions-revoked' }) };
  }

  /** A disabled account is refused everywhere until it is active again; its tokens then work as before. */
  async setStanding(account: Account, standing: Standing): Promise<Delivery[]> {
    const was = account.standing;
    account.standing = standing;
    const type =
      standing === was
        ? undefined
        : standing === 'disabled'
          ? 'account-disabled'
          : was === 'disabled'
            ? 'account-enabled'
            : undefined;
    if (type !== undefined) return this.#tell(this.#hearersOf(account), { account, type });
    await this.#save();
    return [];
  }

  /** Deletes the account with its grants and tokens. Made again, it has the same id but nothing it had before. */
  async purge(account: Account): Promise<Delivery[]> {
    const hearers = this.#hearersOf(account);
    this.#tokens.endAllOf(account.sub);
    this.#grants.removeAllOf(account.sub);
    this.#accounts.remove(account);
    return this.#tell(hearers, { account, type: 'account-purged' });
  }

  #hearersOf(account: Account): Receiver[] {
    return this.#receivers.list().filter(({ clientId }) => {
      const client = this.#clients.find(clientId);
      if (client === undefined) return false;
      return this.#grants
        .scopesOf({ projectNumber: client.projectNumber, sub: account.sub })
        .some((scope) => isSignInScope(scope) && scope !== 'openid');
    });
  }

  async #tell(hearers: Receiver[], about: { account: Account; type: EventType }): Promise<Delivery[]> {
    await this.#save();
    const { sub } = about.account;
    return Promise.all(
      hearers.map(({ clientId, url }) => this.#events.send({ type: about.type, sub, clientId }, url)),
    );
  }
}
