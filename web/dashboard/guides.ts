/** The page of the guides that explains a part of the dashboard: its address below `/guides/`, and the words of the link. */
export const guides = {
  'getting-started': { path: 'quickstart', words: 'Quickstart' },
  'add-to-your-app': { path: 'add-to-your-app', words: 'Add it to your app' },
  integrations: { path: 'authorization', words: 'About integrations and OAuth' },
  catalogue: { path: 'providers', words: 'About providers' },
  connections: { path: 'connections', words: 'About connections' },
  health: { path: 'reference/connection-health', words: 'About connection health' },
  'connect-page': { path: 'connect', words: 'About connect sessions' },
  functions: { path: 'functions', words: 'About functions' },
  runs: { path: 'function-runs', words: 'About runs' },
  records: { path: 'records', words: 'About records' },
  'read-records': { path: 'read-records', words: 'How to read and prune records' },
  retention: { path: 'read-records#retention', words: 'About retention' },
  sheets: { path: 'google-sheets', words: 'About synced sheets' },
  playground: { path: 'proxy', words: 'About the proxy' },
  activity: { path: 'activity', words: 'About the activity log' },
  events: { path: 'events', words: 'About events' },
  endpoints: { path: 'event-deliveries', words: 'About endpoints and deliveries' },
  alerts: { path: 'alerts', words: 'About alerts' },
  keys: { path: 'keys', words: 'About keys' },
  variables: { path: 'function-runs#the-context-of-a-function', words: 'How functions read variables' },
  people: { path: 'users', words: 'About users and roles' },
  account: { path: 'users#sessions', words: 'How users sign in' },
  environments: { path: 'reference/settings#settings-of-an-environment', words: 'About settings' },
  audit: { path: 'audit', words: 'About the audit log' },
} as const;

export type Guide = keyof typeof guides;
