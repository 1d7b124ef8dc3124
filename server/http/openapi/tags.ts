/** What the document's tags are called and mean: routes stand together by what they are about. */
export const areas = [
  { name: 'integrations', description: 'Providers, and our OAuth client for each: what can be connected.' },
  { name: 'connect', description: 'Letting an end user connect an account: sessions, pages, forms.' },
  {
    name: 'connections',
    description: 'Accounts that were connected: health, credentials, metadata, their end.',
  },
  {
    name: 'proxy',
    description: "Calls of a provider's API with the credentials of a connection, and tickets for them.",
  },
  { name: 'records', description: 'The cache of synced records: save, list by cursor, prune, retention.' },
  { name: 'functions', description: 'Syncs, actions and event functions: deploys, schedules, runs, MCP.' },
  { name: 'events', description: 'What the application is told: the feed, endpoints and deliveries.' },
  { name: 'webhooks', description: 'What providers send.' },
  { name: 'activity', description: 'What was done, and who changed what.' },
  { name: 'environment', description: 'Environments, their settings, variables and keys.' },
  { name: 'users', description: 'People of the dashboard. These routes take a cookie, never a key.' },
  { name: 'service', description: 'The service itself: whether it works, and this document.' },
] as const;

type Area = (typeof areas)[number]['name'];

const areaOfPart: Record<string, Area> = {
  providers: 'integrations',
  connection: 'connections',
  oauth: 'connect',
  oauth2: 'connect',
  'api-auth': 'connect',
  auth: 'connect',
  tickets: 'proxy',
  sync: 'functions',
  action: 'functions',
  scripts: 'functions',
  cli: 'functions',
  mcp: 'functions',
  webhook: 'webhooks',
  operations: 'activity',
  audit: 'activity',
  environments: 'environment',
  'environment-variables': 'environment',
};

/** By the first part of the path, and of an integration's functions by the third. */
export function areaOf(url: string): Area {
  const [, part = '', , below] = url.split('/');
  if (below === 'functions') return 'functions';
  return areaOfPart[part] ?? areas.find(({ name }) => name === part)?.name ?? 'service';
}
