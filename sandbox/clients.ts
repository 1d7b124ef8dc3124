import { createHash, randomBytes, randomInt, timingSafeEqual } from 'node:crypto';

/** A Cloud project: grants, quotas and revocation belong to it, not to a single client. */
export interface Project {
  /** Digits; the first part of the ids of its clients. */
  number: string;
  name: string;
  /** The accounts that may consent: all, or those of one Workspace domain. */
  audience: 'external' | 'internal';
  /** The Workspace domain of an internal project. */
  domain?: string;
  /** An external project in testing accepts test users only, and their refresh tokens expire after seven days. */
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
  /** Accepts the path /oauth/callback at http://localhost and 127.0.0.1, on any port. */
  takesLoopback: boolean;
}

const builtInId = '100000000001-sandbox.apps.googleusercontent.com';
const builtInProject: Project = {
  number: '100000000001',
  name: 'Trellis test app',
  audience: 'external',
  publishing: 'production',
  testUsers: [],
};

/** The projects and clients of the sandbox; the built-in test client always exists. */
export class Clients {
  #projects = new Map<string, Project>();
  #clients = new Map<string, Client>();

  constructor(saved: { projects: Project[]; clients: Client[] }) {
    for (const project of saved.projects) this.#projects.set(project.number, project);
    for (const client of saved.clients) this.#clients.set(client.clientId, client);
    if (!this.#projects.has(builtInProject.number)) {
      this.#projects.set(builtInProject.number, { ...builtInProject });
    }
    if (!this.#clients.has(builtInId)) {
      this.#clients.set(builtInId, {
        clientId: builtInId,
        clientSecret: newSecret(),
        projectNumber: builtInProject.number,
        redirectUris: [],
        takesLoopback: true,
      });
    }
  }

  /** The client of the test credentials; its secret is generated at the first start and stored. */
  builtIn(): Client {
    return this.#clients.get(builtInId)!;
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

  /** A new client, in a new project unless an existing project is named. */
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

  /** Registers further redirect URIs with a client. */
  addRedirectUris(client: Client, uris: string[]): void {
    client.redirectUris = [...new Set([...client.redirectUris, ...uris])];
  }
}

/**
 * Whether a redirect URI is registered with the client: equal character by character, or, for the built-in client, on any
 * loopback port.
 */
export function takesRedirect(client: Client, redirectUri: string): boolean {
  if (client.redirectUris.includes(redirectUri)) return true;
  return (
    client.takesLoopback &&
    /^http:\/\/(localhost|127\.0\.0\.1)(:\d{1,5})?\/oauth\/callback$/.test(redirectUri)
  );
}

/** Whether a text is the client's secret, compared in constant time. */
export function isSecretOf(client: Client, secret: string): boolean {
  return timingSafeEqual(sha256(client.clientSecret), sha256(secret));
}

function newSecret(): string {
  return `GOCSPX-${randomBytes(21).toString('base64url')}`;
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
