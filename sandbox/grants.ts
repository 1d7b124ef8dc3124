/** What one account has allowed one project, over all its clients: Google keeps consent by project. */
export interface Grant {
  projectNumber: string;
  sub: string;
  scopes: string[];
  grantedAt: number;
}

/** The consents given. Tokens are kept apart (tokens.ts): a token carries its own scopes from its issue on. */
export class Grants {
  #grants = new Map<string, Grant>();

  constructor(grants: Grant[]) {
    for (const grant of grants) this.#grants.set(keyOf(grant), grant);
  }

  list(): Grant[] {
    return [...this.#grants.values()];
  }

  /** The scopes this account has granted the project; empty when none. */
  scopesOf(pair: { projectNumber: string; sub: string }): string[] {
    return this.#grants.get(keyOf(pair))?.scopes ?? [];
  }

  /**
   * Notes a consent: `granted` is added, `refused` (boxes left empty on the page) is taken out.
   * `at` in milliseconds since the epoch.
   */
  record(consent: {
    projectNumber: string;
    sub: string;
    granted: string[];
    refused: string[];
    at: number;
  }): void {
    const { projectNumber, sub, granted, refused, at } = consent;
    const scopes = new Set([...this.scopesOf(consent), ...granted]);
    for (const scope of refused) scopes.delete(scope);
    this.#grants.set(keyOf(consent), { projectNumber, sub, scopes: [...scopes], grantedAt: at });
  }

  /** Forgets everything a deleted account granted. */
  removeAllOf(sub: string): void {
    for (const [key, grant] of this.#grants) if (grant.sub === sub) this.#grants.delete(key);
  }

  /** Forgets everything the account granted the project. */
  remove(pair: { projectNumber: string; sub: string }): void {
    this.#grants.delete(keyOf(pair));
  }
}

function keyOf(pair: { projectNumber: string; sub: string }): string {
  return `${pair.projectNumber} ${pair.sub}`;
}
