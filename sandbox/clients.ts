import { createHash, randomBytes, randomInt, timingSafeEqual } from 'node:crypto';

/** A Cloud project: grants, quotas and revocation belong to it, not to a single client. */
export interface Project {
  /** Digits; the first part of the ids of its clients. */
  number: string;
  name: string;
  /** Who may consent: anybody, or the accounts of one Workspace domain. */
  audience: 'external' | 'internal';
  /** The Workspace domain of an internal project. */
  domain?: string;
  /** An external project in testing takes its test users alone, and their refresh tokens die after seven days. */
  publishing: 'production' | 'testing';
  /** Addresses, in lower case. */
  testUsers: string[];
}

/** An OAuth client. */
export interface Client {
  clientId: string;
  clientSecret: string;
  projectNumber: string;
  redirectUris: string[];
  /** Takes any http://localhost or 127.0.0.1 address with the path /oauth/callback, whatever the port. */
  takesLoopback: boolean;
}

const BUILT_IN_ID = '100000000001-sandbox.apps.googleusercontent.com';
const BUILT_IN_PROJECT: Project = {
  number: '100000000001',
  name: 'Trellis test app',
  audience: 'external',
  publishing: 'production',
  testUsers: [],
};

/** The projects and clients of this sandbox; the built-in test client always exists. */
export class Clients {
  #projects = new Map<string, Project>();
  #clients = new Map<string, Client>();

  constructor(saved: { projects: Project[]; clients: Client[] }) {
    for (const project of saved.projects) this.#projects.set(project.number, project);
    for (const client of saved.clients) this.#clients.set(client.clientId, client);
    if (!this.#projects.has(BUILT_IN_PROJECT.number)) {
      this.#projects.set(BUILT_IN_PROJECT.number, { ...BUILT_IN_PROJECT });
    }
    if (!this.#clients.has(BUILT_IN_ID)) {
      this.#clients.set(BUILT_IN_ID, {
        clientId: BUILT_IN_ID,
        clientSecret: newSecret(),
        projectNumber: BUILT_IN_PROJECT.number,
        redirectUris: [],
        takesLoopback: true,
      });
    }
  }

  /** The client that test credentials stand for; its secret is made at the first start and kept. */
  builtIn(): Client {
    return this.#clients.get(BUILT_IN_ID)!;
  }

  list(): Client[] {
    return [...this.#clients.values()];
  }

  listProjects(): Project[] {
    return [...this.#projects.values()];
  }

  findProject(number: string): Project | undefined {
    return this.#projects.get(number);
  }

  find(clientId: string): Client | undefined {
    return this.#clients.get(clientId);
  }

  projectOf(client: Client): Project {
    return this.#projects.get(client.projectNumber)!;
  }

  /** A new client, in a project of its own unless an existing project is named. */
  add(wanted: {
    redirectUris: string[];
    projectNumber?: string | undefined;
    name?: string | undefined;
  }): Client {
    const number = wanted.projectNumber ?? String(randomInt(100_000_000_002, 200_000_000_000));
    if (!this.#projects.has(number)) {
      this.#projects.set(number, {
        number,
        name: wanted.name ?? `Project ${number}`,
        audience: 'external',
        publishing: 'production',
        testUsers: [],
      });
    }
    const client: Client = {
      clientId: `${number}-${randomBytes(16).toString('hex')}.apps.googleusercontent.com`,
      clientSecret: newSecret(),
      projectNumber: number,
      redirectUris: wanted.redirectUris,
      takesLoopback: false,
    };
    this.#clients.set(client.clientId, client);
    return client;
  }

  /** Registers further redirect addresses with a client. */
  addRedirectUris(client: Client, uris: string[]): void {
    client.redirectUris = [...new Set([...client.redirectUris, ...uris])];
  }
}

/**
 * Whether a redirect address is one of the client's: equal to a registered one character by character, or,
 * for the built-in client, any loopback port.
 */
export function takesRedirect(client: Client, redirectUri: string): boolean {
  if (client.redirectUris.includes(redirectUri)) return true;
  return (
    client.takesLoopback &&
    /^http:\/\/(localhost|127\.0\.0\.1)(:\d{1,5})?\/oauth\/callback$/.test(redirectUri)
  );
}

/** Whether a text is the client's secret; takes the same time for every wrong one. */
export function isSecretOf(client: Client, secret: string): boolean {
  return timingSafeEqual(sha256(client.clientSecret), sha256(secret));
}

function newSecret(): string {
  return `GOCSPX-${randomBytes(21).toString('base64url')}`;
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
