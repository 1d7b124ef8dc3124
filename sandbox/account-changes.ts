import type { Account, Accounts, Standing } from './accounts.ts';
import type { Clients } from './clients.ts';
import type { Grants } from './grants.ts';
import { isSignInScope } from './oauth/scopes.ts';
import type { Delivery, EventType, Receiver, Receivers, SecurityEvents } from './security-events.ts';
import type { Tokens } from './tokens.ts';

/** The parts of the sandbox that a change of an account uses. */
type AccountChangesParts = {
  accounts: Accounts;
  clients: Clients;
  grants: Grants;
  tokens: Tokens;
  receivers: Receivers;
  securityEvents: SecurityEvents;
  save: () => Promise<void>;
};

/**
 * Changes of an account at the provider: which grants and tokens end, and which security event is sent.
 *
 * A change is on disk before its events are sent; the result is their deliveries. A receiver gets events of an account only
 * if the account has granted its address or profile to the project of the receiver's client.
 */
export class AccountChanges {
  readonly #parts: AccountChangesParts;

  constructor(parts: AccountChangesParts) {
    this.#parts = parts;
  }

  /** Revokes the account's grant for a project: the tokens of all clients of the project end. */
  async revoke(account: Account, projectNumber: string): Promise<Delivery[]> {
    const receivers = this.#receiversOf(account).filter(
      ({ clientId }) => this.#parts.clients.find(clientId)?.projectNumber === projectNumber,
    );
    const pair = { projectNumber, sub: account.sub };
    this.#parts.tokens.endAll(pair);
    this.#parts.grants.remove(pair);
    return this.#notify(receivers, { account, type: 'tokens-revoked' });
  }

  /** Changes the password: tokens with a mail scope end, other tokens stay valid. */
  async changePassword(account: Account): Promise<{ ended: number; deliveries: Delivery[] }> {
    const receivers = this.#receiversOf(account);
    const ended = this.#parts.tokens.endMail(account.sub);
    return { ended, deliveries: await this.#notify(receivers, { account, type: 'sessions-revoked' }) };
  }

  /** Sets the standing. A disabled account is refused everywhere; its tokens work again once it is active. */
  async setStanding(account: Account, standing: Standing): Promise<Delivery[]> {
    const wasDisabled = account.standing === 'disabled';
    const isDisabled = standing === 'disabled';
    account.standing = standing;
    if (isDisabled !== wasDisabled) {
      const type = isDisabled ? 'account-disabled' : 'account-enabled';
      return this.#notify(this.#receiversOf(account), { account, type });
    }
    await this.#parts.save();
    return [];
  }

  /** Deletes the account with its grants and tokens. An account added later with the same address has the same `sub`. */
  async purge(account: Account): Promise<Delivery[]> {
    const receivers = this.#receiversOf(account);
    this.#parts.tokens.endAllOf(account.sub);
    this.#parts.grants.removeAllOf(account.sub);
    this.#parts.accounts.remove(account);
    return this.#notify(receivers, { account, type: 'account-purged' });
  }

  #receiversOf(account: Account): Receiver[] {
    return this.#parts.receivers.list().filter(({ clientId }) => {
      const client = this.#parts.clients.find(clientId);
      if (client === undefined) return false;
      return this.#parts.grants
        .scopesOf({ projectNumber: client.projectNumber, sub: account.sub })
        .some((scope) => isSignInScope(scope) && scope !== 'openid');
    });
  }

  async #notify(receivers: Receiver[], about: { account: Account; type: EventType }): Promise<Delivery[]> {
    await this.#parts.save();
    const { sub } = about.account;
    return Promise.all(
      receivers.map(({ clientId, url }) =>
        this.#parts.securityEvents.send({ type: about.type, sub, clientId }, url),
      ),
    );
  }
}
