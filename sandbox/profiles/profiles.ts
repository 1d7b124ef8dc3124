/**
 * The profile of each provider, as differences to the standard. They are written from the providers' documentation,
 * independently of the catalogue's definitions, which are tested with them.
 */
import { type Profile, standard } from './profile.ts';

type Departures = Partial<Profile>;

const basic: Departures = { clientAuth: 'basic' };
/** An access token that does not expire, without a refresh token. */
const lasting: Departures = { life: 'absent', refresh: 'none', grantedScopes: 'absent' };
const commas: Departures = { requestedScopes: { param: 'scope', separator: ',' } };
const challenge: Departures = { needsChallenge: true };
/** OpenID Connect Core §5.3.2. */
const claims: Departures = { userinfo: { sub: '77', email: 'ada@example.com', email_verified: true } };
/** Accounts with a numeric `id`. */
const numbered: Departures = { userinfo: { id: 77, email: 'ada@example.com' } };
const offlineScope = (scope: string): Departures => ({ offline: { scope } });

const google: Departures = {
  ...challenge,
  ...claims,
  issuer: 'https://accounts.google.com',
  offline: { params: { access_type: 'offline' } },
  refresh: 'silent',
  revocationAuth: 'none',
};
const slack: Departures = {
  ...basic,
  tokenType: 'bot',
  faults: 'in_200',
  deadGrant: 'invalid_refresh_token',
  grantedScopes: 'comma',
  ...commas,
};
const atlassian: Departures = {
  ...offlineScope('offline_access'),
  needs: { authorization: { audience: 'api.atlassian.com', prompt: 'consent' } },
  userinfo: { account_id: '77', email: 'ada@example.com' },
};
const zoho: Departures = {
  ...commas,
  offline: { params: { access_type: 'offline' } },
  refresh: 'silent',
  faults: 'in_200',
  deadGrant: 'invalid_code',
  token: { scheme: 'Zoho-oauthtoken' },
};
const microsoft: Departures = {
  ...challenge,
  ...claims,
  ...offlineScope('offline_access'),
  unnamedScope: 'offline_access',
};
/** A token for another resource than Microsoft Graph, which has the only userinfo. */
const azure: Departures = { ...challenge, ...offlineScope('offline_access'), unnamedScope: 'offline_access' };
const gitlab: Departures = { ...challenge, ...claims };

const departures: Record<string, Departures> = {
  google,
  'amazon-selling-partner': {
    codeIn: 'spapi_oauth_code',
    tokenType: 'bearer',
    grantedScopes: 'absent',
    refresh: 'repeats',
    token: { header: 'x-amz-access-token' },
  },
  airtable: {
    ...basic,
    ...challenge,
    refreshLifeIn: 'refresh_expires_in',
    userinfo: { id: '77', email: 'ada@example.com' },
  },
  asana: {
    ...challenge,
    refresh: 'silent',
    grantedScopes: 'absent',
    userinfo: { data: { gid: '77', email: 'ada@example.com', name: 'Ada' } },
  },
  attio: { ...lasting },
  auth0: { ...challenge, ...claims, ...offlineScope('offline_access') },
  aweber: { ...basic },
  'azure-devops': azure,
  basecamp: {
    needs: {
      authorization: { type: 'web_server' },
      exchange: { type: 'web_server' },
      refresh: { type: 'refresh' },
    },
    tokenType: '',
    refresh: 'silent',
    grantedScopes: 'absent',
    userinfo: { identity: { id: 77, email_address: 'ada@example.com' } },
  },
  bitbucket: { ...basic, grantedIn: 'scopes', refresh: 'repeats', userinfo: { account_id: '77' } },
  box: { userinfo: { id: '77', login: 'ada@example.com' }, grantedScopes: 'absent' },
  calendly: { ...challenge, userinfo: { resource: { uri: '77', email: 'ada@example.com' } } },
  canva: { ...basic, ...challenge, userinfo: { team_user: { user_id: '77', team_id: '1' } } },
  clickup: { ...lasting, userinfo: { user: { id: 77, email: 'ada@example.com' } } },
  close: { ...offlineScope('offline_access'), userinfo: { id: '77', email: 'ada@example.com' } },
  confluence: atlassian,
  'constant-contact': { ...basic, ...offlineScope('offline_access') },
  digitalocean: {},
  discord: { userinfo: { id: '77', email: 'ada@example.com', verified: true } },
  docusign: { ...basic, ...claims },
  dropbox: { ...challenge, offline: { params: { token_access_type: 'offline' } }, refresh: 'silent' },
  'dynamics-365': {
    ...azure,
    userinfo: { UserId: '77', BusinessUnitId: '1', OrganizationId: '2' },
  },
  egnyte: lasting,
  etsy: { ...challenge, clientAuth: 'public', grantedScopes: 'absent' },
  eventbrite: { ...lasting, ...numbered },
  facebook: { ...commas, ...numbered, tokenType: 'bearer', refresh: 'none', grantedScopes: 'absent' },
  figma: { ...basic, ...numbered, tokenType: '', refresh: 'silent', grantedScopes: 'absent' },
  freshbooks: { tokenRequest: 'json', userinfo: { response: { id: 77, email: 'ada@example.com' } } },
  front: { ...basic, life: 'unix', grantedScopes: 'absent' },
  gitea: { ...challenge, ...claims, tokenType: 'bearer', grantedScopes: 'absent' },
  github: {
    ...lasting,
    ...numbered,
    grantedScopes: 'comma',
    faults: 'in_200',
    deadGrant: 'bad_refresh_token',
  },
  'github-app': {
    ...numbered,
    tokenType: 'bearer',
    grantedScopes: 'empty',
    faults: 'in_200',
    deadGrant: 'bad_refresh_token',
  },
  gitlab,
  'gitlab-self-managed': gitlab,
  gocardless: { ...lasting, tokenType: 'bearer' },
  gusto: {},
  harvest: { userinfo: { user: { id: 77, email: 'ada@example.com' } }, grantedScopes: 'absent' },
  'help-scout': { ...numbered, grantedScopes: 'absent' },
  heroku: { refresh: 'repeats', grantedScopes: 'absent' },
  hubspot: { tokenType: 'bearer', refresh: 'repeats', grantedScopes: 'absent' },
  'hugging-face': { ...basic, ...challenge, ...claims },
  intercom: { ...lasting, ...numbered },
  jira: atlassian,
  keycloak: {
    ...challenge,
    ...claims,
    ...offlineScope('offline_access'),
    refreshLifeIn: 'refresh_expires_in',
  },
  klaviyo: { ...basic, ...challenge, refresh: 'repeats' },
  lever: {
    ...offlineScope('offline_access'),
    needs: { authorization: { audience: 'https://api.lever.co/v1/' } },
  },
  linear: { ...commas, ...challenge },
  linkedin: { ...claims, refresh: 'none', tokenType: '', grantedScopes: 'comma' },
  mailchimp: { ...lasting, life: 'zero', grantedScopes: 'null', tokenType: '' },
  mastodon: { ...lasting, grantedScopes: 'space', userinfo: { id: '77', username: 'ada' } },
  'microsoft-graph': microsoft,
  'microsoft-teams': microsoft,
  'microsoft-azure': azure,
  'microsoft-bookings': microsoft,
  'microsoft-entra': microsoft,
  'microsoft-excel': microsoft,
  'microsoft-planner': microsoft,
  'microsoft-to-do': microsoft,
  miro: {},
  mollie: { ...basic },
  monday: challenge,
  netlify: { ...lasting, ...numbered },
  netsuite: { ...basic, ...challenge },
  notion: {
    ...basic,
    tokenRequest: 'json',
    tokenType: 'bearer',
    life: 'absent',
    grantedScopes: 'absent',
    needs: { authorization: { owner: 'user' } },
  },
  okta: { ...basic, ...challenge, ...claims, ...offlineScope('offline_access') },
  'one-note': microsoft,
  onedrive: microsoft,
  outlook: microsoft,
  outreach: {},
  pagerduty: { ...challenge, userinfo: { user: { id: '77', email: 'ada@example.com' } } },
  patreon: { userinfo: { data: { id: '77', type: 'user' } } },
  paypal: { ...basic, userinfo: { user_id: '77', email: 'ada@example.com' } },
  pinterest: { ...basic, ...commas },
  pipedrive: { ...basic, grantedScopes: 'comma' },
  podio: { tokenRequest: 'json', token: { scheme: 'OAuth2' }, tokenType: 'bearer' },
  'power-bi': azure,
  quickbooks: {
    ...basic,
    refreshLifeIn: 'x_refresh_token_expires_in',
    tokenType: 'bearer',
    grantedScopes: 'absent',
    userinfo: { sub: '77', email: 'ada@example.com', emailVerified: true },
  },
  reddit: {
    ...basic,
    offline: { params: { duration: 'permanent' } },
    refresh: 'repeats',
    userinfo: { id: '77', name: 'ada' },
  },
  ringcentral: {
    ...basic,
    refreshLifeIn: 'refresh_token_expires_in',
    userinfo: { id: 77, contact: { email: 'ada@example.com' } },
  },
  'sage-intacct': offlineScope('offline_access'),
  salesforce: {
    ...challenge,
    ...offlineScope('refresh_token'),
    life: 'absent',
    refresh: 'silent',
    revocationAuth: 'none',
    userinfo: { sub: 'https://login.salesforce.com/id/00D/77', user_id: '77', email: 'ada@example.com' },
  },
  salesloft: {},
  sentry: { grantedScopes: 'absent' },
  'sharepoint-online': microsoft,
  servicenow: {},
  shopify: {
    ...commas,
    tokenType: '',
    endsBy: { param: 'expiring', in: 'exchange' },
    refresh: 'overlaps',
    refreshLifeIn: 'refresh_token_expires_in',
    grantedScopes: 'comma',
    token: { header: 'x-shopify-access-token' },
  },
  slack,
  'slack-user': {
    ...slack,
    tokenType: 'user',
    tokenIn: 'authed_user',
    requestedScopes: { param: 'user_scope', separator: ',' },
  },
  smartsheet: { grantedScopes: 'absent' },
  snowflake: { ...basic, ...offlineScope('refresh_token'), refresh: 'silent' },
  spotify: { ...basic, ...numbered, refresh: 'silent' },
  square: {
    tokenRequest: 'json',
    tokenType: 'bearer',
    life: 'date',
    grantedScopes: 'absent',
    refresh: 'repeats',
  },
  'stack-exchange': {
    ...lasting,
    ...commas,
    answer: 'form',
    tokenType: '',
    life: 'expires',
    token: { query: 'access_token' },
  },
  strava: { ...commas, grantedScopes: 'absent', userinfo: { id: 77, username: 'ada' } },
  stripe: { tokenType: 'bearer', life: 'absent', refresh: 'repeats' },
  supabase: { ...basic, ...challenge, grantedScopes: 'absent' },
  surveymonkey: { ...lasting, tokenType: 'bearer' },
  tiktok: {
    ...commas,
    clientIdIn: 'client_key',
    refreshLifeIn: 'refresh_expires_in',
    grantedScopes: 'comma',
    userinfo: { data: { user: { open_id: '77', display_name: 'Ada' } }, error: { code: 'ok' } },
  },
  todoist: { ...lasting, ...commas },
  twitch: {
    ...claims,
    tokenType: 'bearer',
    grantedScopes: 'list',
    faults: 'message',
    deadGrant: 'Invalid refresh token',
  },
  typeform: { ...offlineScope('offline'), userinfo: { user_id: '77', email: 'ada@example.com' } },
  webex: { userinfo: { id: '77', displayName: 'Ada' } },
  webflow: { ...lasting, ...numbered, tokenRequest: 'json' },
  'wordpress-com': { ...lasting, tokenType: 'bearer' },
  workday: { grantedScopes: 'absent' },
  wrike: { ...commas, tokenType: 'bearer', grantedScopes: 'absent' },
  x: { ...basic, ...challenge, ...offlineScope('offline.access'), userinfo: { data: { id: '77' } } },
  xero: { ...basic, ...offlineScope('offline_access') },
  zendesk: {
    tokenRequest: 'json',
    tokenType: 'bearer',
    endsBy: { param: 'expires_in', in: 'exchange and refresh' },
    refreshLifeIn: 'refresh_token_expires_in',
    userinfo: { user: { id: 77, email: 'ada@example.com', verified: true } },
  },
  'zoho-books': zoho,
  'zoho-crm': zoho,
  'zoho-desk': zoho,
  zoom: { ...basic, life: 'text' },
};

/** Imported definitions: no departures are known. */
const plain = [
  'climate-fieldview',
  'daniweb',
  'drchrono',
  'flat-io',
  'furkot',
  'linode',
  'npr-station-finder',
  'shutterstock',
  'signl4',
  'zettle',
  'clever',
];
for (const name of plain) departures[name] = {};

/** The profile of a provider, or undefined. All Google products share `google`. */
export function profileOf(name: string): Profile | undefined {
  const own = Object.hasOwn(departures, name) ? departures[name] : undefined;
  return own && { ...standard, ...own };
}
