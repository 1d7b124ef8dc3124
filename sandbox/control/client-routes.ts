/** Control routes about projects and their clients. */
import { z } from 'zod';
import type { Client, Project } from '../clients.ts';
import { ControlError, invalid, readBody } from './answer.ts';
import {
  ADDED_LIMIT,
  type ControlRoute,
  EMAIL,
  getClient,
  getProject,
  NAME,
  PROJECT_NUMBER,
} from './parts.ts';

const CLIENT = z.strictObject({
  client_id: z.string().optional(),
  name: NAME.optional(),
  project_number: PROJECT_NUMBER.optional(),
  redirect_uris: z
    .array(z.url({ protocol: /^https?$/ }))
    .min(1)
    .max(100),
});
const PROJECT = z.strictObject({
  project_number: PROJECT_NUMBER,
  name: NAME.optional(),
  audience: z.enum(['external', 'internal']).optional(),
  // Null takes it away.
  domain: NAME.nullable().optional(),
  publishing: z.enum(['testing', 'production']).optional(),
  // Google lists a hundred testers at most.
  test_users: z.array(EMAIL).max(100).optional(),
});

export const CLIENT_ROUTES: Record<string, ControlRoute> = {
  'GET /clients': (_request, { clients }) => ({ clients: clients.list().map(clientToWire) }),

  'POST /clients': async (request, { clients, save }) => {
    const body = readBody(request, CLIENT);
    const known = body.client_id === undefined ? undefined : getClient(body.client_id, clients);
    if (known === undefined && clients.list().length >= ADDED_LIMIT) {
      throw new ControlError(400, 'limit_reached', `body: there are ${ADDED_LIMIT} clients already`);
    }
    if (known !== undefined) clients.addRedirectUris(known, body.redirect_uris);
    const client =
      known ??
      clients.add({ redirectUris: body.redirect_uris, projectNumber: body.project_number, name: body.name });
    await save();
    return clientToWire(client);
  },

  'GET /projects': (_request, { clients }) => ({ projects: clients.listProjects().map(projectToWire) }),

  'POST /projects': async (request, { clients, save }) => {
    const { project_number: number, test_users: testUsers, domain, ...settings } = readBody(request, PROJECT);
    const project = getProject(number, clients);
    const audience = settings.audience ?? project.audience;
    if (audience === 'internal' && (domain === undefined ? project.domain : domain) == null) {
      throw invalid('domain', 'an internal project belongs to a Workspace domain');
    }
    const lowered = testUsers?.map((email) => email.toLowerCase());
    if (domain === null) delete project.domain;
    else if (domain !== undefined) project.domain = domain;
    Object.assign(project, settings, lowered === undefined ? {} : { testUsers: lowered });
    await save();
    return projectToWire(project);
  },
};

function clientToWire(client: Client) {
  const { clientId, clientSecret, projectNumber, redirectUris } = client;
  return {
    client_id: clientId,
    client_secret: clientSecret,
    project_number: projectNumber,
    redirect_uris: redirectUris,
  };
}

function projectToWire({ number, name, audience, domain, publishing, testUsers }: Project) {
  return {
    project_number: number,
    name,
    audience,
    ...(domain === undefined ? {} : { domain }),
    publishing,
    test_users: testUsers,
  };
}
