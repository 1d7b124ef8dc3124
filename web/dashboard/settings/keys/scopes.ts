/** The meaning of each scope. A scope without a description is shown by its name. */
type ScopeGroup = { name: string; scopes: { scope: string; about: string }[] };

const groups: [string, Record<string, string>][] = [
  [
    'Integrations',
    {
      'integrations:read': 'See providers and integrations',
      'integrations:write': 'Create, change and delete integrations',
      'integrations:secrets': 'Read client secrets',
    },
  ],
  [
    'Connections',
    {
      'connections:read': 'See connections and their health, without credentials',
      'connections:write': 'Create connect links; change, refresh and delete connections',
      'connections:credentials': 'Read access tokens, API keys and passwords',
      'connections:refresh_tokens': 'Read refresh tokens',
    },
  ],
  [
    'Proxy',
    {
      'proxy:read': 'GET and HEAD through the proxy, and tickets for them',
      'proxy:write': 'All other methods through the proxy, and tickets for them',
    },
  ],
  [
    'Records',
    {
      'records:read': 'Read records and datasets, and store a cursor',
      'records:write': 'Save, change, delete and prune records',
    },
  ],
  [
    'Events',
    {
      'events:read': 'Read the feed, endpoints with their addresses, and deliveries',
      'events:write': 'Create, change and delete endpoints; replay events',
    },
  ],
  [
    'Environment',
    {
      'environment:read': 'See settings, names of variables and retention',
      'environment:write': 'Change settings, variables and retention',
      'environment:secrets': 'Read the values of variables',
      keys: 'Create and revoke keys, read and rotate the signing key',
      'activity:read': 'See operations and the audit log',
    },
  ],
  [
    'Functions',
    {
      'functions:read': 'See functions, their source and their runs',
      'functions:write': 'Run, pause and turn off functions',
      'functions:deploy': 'Deploy code, which can use all connections',
    },
  ],
  ['For later releases', { 'activity:write': 'Reserved', 'metrics:read': 'Reserved' }],
];

/** Scopes that no route needs yet: a new key cannot choose them, and an older key may have them. */
export const reservedScopes = ['activity:write', 'metrics:read'];

/** Scopes for a usual purpose. A preset without scopes has all that only read. */
export type Preset = { name: string; about: string; scopes?: string[] };
export const presets: Preset[] = [
  {
    name: 'Application backend',
    about: 'Connect users, call providers, read and save records, run functions, follow events',
    scopes: [
      'integrations:read',
      'connections:read',
      'connections:write',
      'proxy:read',
      'proxy:write',
      'records:read',
      'records:write',
      'functions:read',
      'functions:write',
      'events:read',
    ],
  },
  { name: 'Read-only', about: 'Read everything except provider APIs; change nothing' },
  {
    name: 'Agent (MCP)',
    about: 'Call actions as MCP tools. The key can also change and delete functions; a ticket is safer',
    scopes: ['functions:read', 'functions:write'],
  },
  {
    name: 'Deploy from CI',
    about: 'Deploy functions',
    scopes: ['functions:read', 'functions:deploy'],
  },
];

/** The scopes of a preset that the user may grant, and the others. */
export function scopesOfPreset(
  { scopes }: Preset,
  givable: readonly string[],
): { given: string[]; lacking: string[] } {
  if (scopes === undefined) {
    const read = givable.filter(
      (scope) => scope.endsWith(':read') && ![...reservedScopes, 'proxy:read'].includes(scope),
    );
    return { given: read, lacking: [] };
  }
  return {
    given: scopes.filter((scope) => givable.includes(scope)),
    lacking: scopes.filter((scope) => !givable.includes(scope)),
  };
}

/** The scopes that the user may grant, in groups. */
export function groupsOf(scopes: readonly string[]): ScopeGroup[] {
  const known = new Set(groups.flatMap(([, own]) => Object.keys(own)));
  const others = scopes.filter((scope) => !known.has(scope) && scope !== '*');
  return [
    ...groups.map(([name, own]) => ({
      name,
      scopes: Object.entries(own)
        .filter(([scope]) => scopes.includes(scope))
        .map(([scope, about]) => ({ scope, about })),
    })),
    { name: 'Others', scopes: others.map((scope) => ({ scope, about: '' })) },
  ].filter((group) => group.scopes.length > 0);
}
