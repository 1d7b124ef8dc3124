/** The scopes that an account has granted a project, for all of its clients: Google stores consent by project. */
export interface Grant {
  projectNumber: string;
  sub: string;
  scopes: string[];
  grantedAt: number;
}

/** The grants. A token has its own scopes from the time of its issue (tokens.ts). */
export class Grants {
  #grants = new Map<string, Grant>();

  constructor(grants: Grant[]) {
    for (const grant of grants) this.#grants.set(keyOf(grant), grant);
  }

  list(): Grant[] {
    return [...this.#grants.values()];
  }

  /** The scopes that the account has granted the project. */
  scopesOf(pair: { projectNumber: string; sub: string }): string[] {
    return this.#grants.get(keyOf(pair))?.scopes ?? [];
  }

  /**
   * Records a consent: `granted` is added, `refused` (boxes that were not ticked) is removed.
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

  /** Removes the grants of a deleted account. */
  removeAllOf(sub: string): void {
    for (const [key, grant] of this.#grants) if (grant.sub === sub) this.#grants.delete(key);
  }

  /** Removes the grant of the account for the project. */
  remove(pair: { projectNumber: string; sub: string }): void {
    this.#grants.delete(keyOf(pair));
  }
}

function keyOf(pair: { projectNumber: string; sub: string }): string {
  return `${pair.projectNumber} ${pair.sub}`;
}
